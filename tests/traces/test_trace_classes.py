"""What kernels are, by the names that libraries give them."""

from pathlib import Path

import pytest

from sweeps.errors import InputError
from sweeps.traces.patterns import CLASSES, EXCLUDED, load_patterns

GEMM = (
    "volta_sgemm_128x64_nn",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cga2x1x1_warpgroupsize2x1x1_tensor",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nt_align4>(cutlass_80::Params)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>, "
    "cutlass::epilogue::collective::CollectiveEpilogue<cutlass::epilogue::Sm90Tma> >",
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT",
    "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT",
    "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1",
    "void deep_gemm::fp8_gemm_kernel<7168u, 2048u, 128u, 128u, 128u, 1u>(__nv_bfloat16*, float*)",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 2048u>(float*, int*)",
    "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float>",
    "triton_tem_fused_addmm_3",
    "void fbgemm_gpu::f8f8bf16<cutlass::gemm::kernel::GemmUniversal<int> >(int)",
)
OTHER = (
    "void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>(int, int, int)",
    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::Mainloop, "
    "cutlass::gemm::GemmShape<1> > > >(flash::Params)",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bf16> >",
    "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128_4x1x1_cga1x1x1",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16>",
    "void cublasLt::epilogue::impl::globalKernel<8, 32, float, float>(int, float*)",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_stage5",
    "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionE",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >",
    "triton_poi_fused_add_cos_sin_0",
    "void reduce_bf16_cuda<8>(void*, void*, int)",
    "void reduce_fp8_in_bf16_out_cuda<__nv_fp8_e4m3, 8>(void*, void*, float const*, int)",
    "void deep_ep::intranode::get_dispatch_layout<256, 32, 8>(long const*, int*, int*, bool*)",
)
COMMUNICATION = (
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs)",
    "ncclSymDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymDevArgs)",
    "void ncclKernel_AllReduce_TREE_LL128_Sum_half(ncclDevComm*, unsigned long, ncclWork*)",
    "hccl_all_reduce",
    "void kuserbuffers_pushsend<int>(int, int, int*, int*, int4*, int4*, int)",
    "kuserbuffers_pushsendrecv(int*, int*, int, int, int*, int4*, int4*, int)",
    "void userbuffers_fp16_sum_inplace_gpu_rw<8>(int, int, int, int, int, int, int, void**)",
    "void userbuffers_fp16_sum_inplace_gpu_mc_ag<4>(int, int, int, int, int, int, void**)",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_stride_atomic_fp8<8, __nv_fp8_e5m2>(void*)",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*, long*, float*, int*)",
    "void deep_ep::internode_ll::combine<true, 7168, 9>(void*, void*, int*, void*)",
    "void dpsk::ep::dispatch<8>(int4*, float*)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
)
WAIT = (
    "kuserbuffers_pushrecv(int, int, int, int*, int*, int, int*, unsigned long)",
    "void kuserbuffers_pushrecv_atomic(int, int, int, int*, int*, int, int*, void*, int)",
    "producer_kernel(void*, int)",
    "consumer_kernel(void*, int)",
    "void deep_ep::intranode::barrier<8>(int**, int)",
)
PATTERNS = load_patterns()


def kind(category: str, name: str) -> str:
    code = PATTERNS.code(category, name)
    return "excluded" if code == EXCLUDED else CLASSES[code]


@pytest.mark.parametrize(
    ("expected", "names"),
    [("gemm", GEMM), ("other", OTHER), ("communication", COMMUNICATION), ("wait", WAIT)],
)
def test_kernels_of_libraries(expected: str, names: tuple[str, ...]) -> None:
    assert {name: kind("kernel", name) for name in names} == dict.fromkeys(names, expected)
    # Old files write the category with a capital.
    assert {kind("Kernel", name) for name in names} == {expected}


@pytest.mark.parametrize(
    ("category", "name", "expected"),
    [
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", "copy"),
        ("Memcpy", "Memcpy HtoD (Pinned -> Device)", "copy"),
        ("gpu_memset", "Memset (Device)", "copy"),
        # The payload of userbuffers' ring exchange.
        ("gpu_memcpy", "Memcpy PtoP (Device -> Device)", "communication"),
        ("kernel", "__amd_rocclr_copyBuffer", "copy"),
        ("gpu_memcpy", "CopyHostToDevice", "copy"),
        ("gpu_user_annotation", "nccl:all_reduce", "excluded"),
        ("cuda_sync", "Stream Wait Event", "excluded"),
        ("Trace", "PyTorch Profiler (0)", "excluded"),
        ("cuda_runtime", "cudaLaunchKernel", "excluded"),
        ("cpu_op", "triton_poi_fused_add_0", "excluded"),
        ("kernel", "at::cuda::(anonymous namespace)::spin_kernel(long)", "excluded"),
    ],
)
def test_rows_by_category(category: str, name: str, expected: str) -> None:
    assert kind(category, name) == expected


def test_own_patterns_go_first(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[[rules]]\nclass = "communication"\nnames = ["^my_ring"]\nexcept = ["local"]\n')
    patterns = load_patterns(own)
    assert CLASSES[patterns.code("kernel", "my_ring_exchange")] == "communication"
    assert CLASSES[patterns.code("kernel", "my_ring_local")] == "other"
    assert CLASSES[patterns.code("kernel", GEMM[0])] == "gemm"
    own.write_text(f'alone = true\nactivity = ["kernel"]\n{own.read_text()}')
    patterns = load_patterns(own)
    assert CLASSES[patterns.code("kernel", GEMM[0])] == "other"
    assert patterns.code("gpu_memcpy", "Memcpy DtoD") == EXCLUDED


def test_faults_of_patterns_are_told_together(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'aktivity = ["kernel"]\n'
        '[[rules]]\nclass = "comunication"\nnames = ["("]\n'
        '[[rules]]\nclass = "copy"\nname = ["x"]\n'
        '[[rules]]\nclass = "gemm"\nnames = "x"\n'
    )
    with pytest.raises(InputError) as caught:
        load_patterns(own)
    found = "\n".join(caught.value.faults)
    assert "aktivity = '['kernel']': unknown key; did you mean 'activity'?" in found
    assert "rule 1: class = 'comunication': unknown; did you mean 'communication'?" in found
    assert "rule 1: names = '(': is not a regular expression" in found
    assert "rule 2: name = '['x']': unknown key; did you mean 'names'?" in found
    assert "rule 2 needs what it is about; give names, or categories" in found
    assert "rule 3: names = 'x': is not a list of texts" in found
    assert len(caught.value.faults) == 6

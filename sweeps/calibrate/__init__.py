"""Links fitted to measured collectives: logs of nccl-tests beside what the machine should do."""

"""Meanings, labels and titles are in the English of the field: no house words, no two alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from overhead.communication.operation import OPERATIONS
from overhead.everything import algorithms, formulas, load
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY

# What isn't written, each with a name for what is: a pattern searched for as it stands.
BANNED = {
    "genitive": (
        r"\b(?:parallelism|pipeline|layer|stage|attention|kernel|product|expert|token|"
        r"message|rank|group|network|node|link|step|batch|memory|host|GPU|machine|model|"
        r"optimizer|library|framework|ring|sequence|micro-batch|mixture|checkpoint|server|"
        r"router|norm|block|projection|weight|gradient|operation|profile|plan)(?:'s|"
        r"s')(?= [a-z])"
    ),
    "product": (
        r"\b[Mm]atrix products?\b|"
        r"(?<!dot )(?<!outer )(?<!this )\bproducts?\b(?! of (?:the )?(?:degrees|dp))"
    ),
    "forwards": (
        r"\b(?:[Ff]orwards|[Bb]ackwards)\b|\b(?:a|the|each|every|its|one|layer's|"
        r"step's) (?:forward|backward)(?=$|[,;:.)]| (?:of|that|for|by|from|in|on|is|has|"
        r"repeats|alone))"
    ),
    "uncontracted": r"\b(?:isn't|aren't|doesn't|don't|can't|won't|hasn't|haven't|needn't)\b",
    "headless": (
        r"^(?:[a-z ]+: )?(?:what|who|of (?:a|the|what)|those that|that|how (?:often|a|to|"
        r"the|tokens|attention|tensor|context|expert|data))\b"
    ),
    "what clause": (
        r"(?<=[a-z,;:] )what (?:no|a|an|the|is|are|it|they|each|isn't|aren't|follows|comes|"
        r"fits|binds|hides|stays|else|goes|happens|one|that)\b"
    ),
    "a-for-per": (
        r"\b(?:tokens?|sequences|bytes|GPUs?|cards?|FLOPs|records?|lines?|dollars|"
        r"interruptions|parameters|blocks|ranks|trace|chunk|curves?|row|configuration|"
        r"microseconds) an? (?:second|GPU|node|step|rank|token|layer|day|server|chunk|cell|"
        r"size|batch|fault|call|logit|row|head)\b|,? an? (?:GPU|token|parameter|logit|"
        r"head)(?=$|[,;:.)\[ ]*$)"
    ),
    "say/tell": r"\b(?:[Ss]ay|[Ss]ays|[Ss]aid|[Tt]ell|[Tt]ells|[Tt]old)\b",
    "beside": r"\b[Bb]eside\b",
    "mixture": r"\b[Mm]ixtures?\b(?!-of-Experts| of Experts)",
    "least/most": (
        r"\b(?:[Ll]east|[Gg]reatest|[Mm]ost) (?:time|bytes|step|tokens?|memory|cost|energy|"
        r"number|of)\b|\b[Hh]ighest in each\b"
    ),
    "card": r"\b[Cc]ards?\b",
    "further token": r"\bfurther tokens?\b",
    "multiprocessor": r"\b(?:[Ss]treaming )?[Mm]ultiprocessors?\b",
    "left out": r"\bleft out\b",
    "fewer bytes": r"\bin fewer(?: bytes)?\b|\bin 8 bits\b|\bin 16 bits?\b|\bstays? in 16\b",
    "cell": r"\bcells?\b",
    "at once": r"\bat once\b|\bside by side\b|\brun beside\b",
    "own": (
        r"\bOwn (?:machines|formulas|models|frameworks|patterns|rules)\b|\b(?:formulas?|"
        r"machines?|files?|figures?) of (?:one's|your) own\b"
    ),
    "in the mean": r"\bin the mean\b|\bmean of the stage's\b",
    "by-ratio": (
        r"\bby (?:that|those|one|others'?|its own|that of|the mean|most|the peak|"
        r"a plain one's|a whole one's|it)\b(?=$|[,;:.)]| of)"
    ),
    "whole": (
        r"\b[Ww]hole (?:training|run|layers?|step|message|messages|sequence|pipeline|model|"
        r"cluster|grid|node|nodes|file|page)\b"
    ),
    "in turn": r"\bin turn\b|\bone after another\b|\bone after the other\b",
    "place": (
        r"\b(?:place|places) of\b|\bring's (?:next )?place\b|\bfree places\b|"
        r"\bin a step's place\b"
    ),
    "add up": r"\badd(?:s|ed|ing)? up\b|\bsumm?ed up\b",
    "question title": r"^(?:How|What|Which|Where|Why|Who|Does|Is)\b.*\?",
    "fullest": r"\b[Ff]ull(?:est|er)\b",
    "masked ones": r"\bmasked (?:ones|scores)\b",
    "leave out": r"\bleave (?:it|them|the|one) out\b|\bleaves? out\b",
    "so many": r"\bso (?:many|few|much)\b|\bas few as fit\b",
    "again": (
        r"\b(?:computed|done|made|found|drawn|compute|run|repeats?|repeated) again\b|"
        r"\bcomputes? again\b"
    ),
    "round": (
        r"\b(?:all the way |goes |go |passed |passes |comes? )round\b|\bround (?:a|"
        r"the) ring\b"
    ),
    "busiest": r"\b[Bb]usiest\b|\bthat has most\b|\bmost layers\b",
    "ends": r"\b(?:the|both|uneven|pipeline's|two) ends\b|\bends' |\bof the ends\b",
    "waiting for": r"\bwait(?:s|ing)? for (?:the host|servers|data|host)\b|\bwhat waiting\b",
    "but for": r"\bbut for\b",
    "taken as": (
        r"\bnot given, so taken\b|\b(?:is|are|was|what is|that is) taken\b|\btaken (?:as|"
        r"to be|for)\b"
    ),
    "all together": r"\ball together\b|^ *together$",
    "library": r"\bwithout a library\b|\blibrary's profile\b|\bits library\b",
    "lies": r"\blies? (?:in|on|between|behind|elsewhere)\b|\blay predictions\b|\bLay\b",
    "power of two negated": r"\bno (?:power|whole|wire|sooner|faster|fewer|more than)\b",
    "can run": (
        r"\b(?:that|which|plans?|can|could) (?:can )?run\b(?= \(|$|:|, and has)|"
        r"\bplans that can run\b"
    ),
    "by the mean": r"\bby the mean\b|\bby their mean\b|, mean by most\b|\bmean by most\b",
    "can't be": r"\bcan't be(?=[,.;:)]|$| whatever| had)|\bcan't (?:run|make)\b",
    "four in five": (
        r"\bfour in five\b|\bhalf of them within\b|\bas near as said\b|\btwo thirds of\b"
    ),
    "go on": r"\b[Gg]o(?:es)? on with\b|\bgo on\b",
    "software that": (
        r"\b(?:software|library|framework|server|machine)s? that (?:trains|runs|prices|"
        r"failed|are away)\b"
    ),
    "fall": r"\bfalls? (?:out|for)\b|\bfell\b",
    "were even": r"\bwere all\b|\bwere (?:it|they)\b",
    "prices": r"\bprices? collectives\b|\bcharges?\b|\bcharged\b",
    "lost node": r"\ba node lost\b|\blost nodes?\b|\bnode is gone\b|\baway at once\b",
    "-fold": r"\b\d+-fold\b|\bexpert-fold\b",
    "supplies": r"\bbehind its supplies\b|\bits supplies\b",
    "touch": r"\bto (?:open, to )?touch\b|\bpass(?:ed)? on\b(?! )",
    "holds back": r"\bholds? it back\b|\bfew(?:er)? just fails?\b|\bjust fail\b",
}
# Texts that may match a pattern, with the reason.
ALLOWED: dict[str, str] = {}
ARTICLE = re.compile(r"\b(?:an?|the) ", re.IGNORECASE)


def titles() -> Iterator[str]:
    return (formula.title for formula in formulas())


def meanings() -> Iterator[str]:
    return (one.meaning for one in VOCABULARY.values())


def labels() -> Iterator[str]:
    return (label.meaning for label in LABELS.values())


def assumptions() -> Iterator[str]:
    return (text for one in (*formulas(), *algorithms()) for text in one.assumes)


def matches(text: str) -> list[str]:
    return [name for name, pattern in BANNED.items() if re.search(pattern, text)]


@pytest.mark.parametrize("texts", [meanings, titles, labels, assumptions])
def test_house_words_are_not_written(texts: Callable[[], Iterable[str]]) -> None:
    found = {text: matches(text) for text in texts() if text not in ALLOWED}
    assert not {text: names for text, names in found.items() if names}


def test_every_exception_is_one() -> None:
    known = {*meanings(), *titles(), *labels(), *assumptions()}
    assert not [text for text in ALLOWED if text not in known or not matches(text)]


def test_no_two_meanings_are_alike() -> None:
    alike = Counter(ARTICLE.sub("", text).casefold() for text in meanings())
    assert not [text for text, times in alike.items() if times > 1]


def test_quantities_of_an_operation_begin_with_its_title() -> None:
    load()
    for name, operation in OPERATIONS.items():
        for part in ("time", "sent_bytes", "energy"):
            assert VOCABULARY[f"{name}_{part}"].meaning.startswith(f"{operation.title}: ")


def test_ratios_name_both_sides_and_conditions_their_values() -> None:
    """A ratio is A / B or a fraction; what is 0 or 1 says so."""
    for one in VOCABULARY.values():
        if one.name.endswith(("_ratio", "_balance", "_imbalance")):
            assert "/" in one.meaning, one.name
    flags = [
        one for one in VOCABULARY.values() if one.integer and (one.minimum, one.maximum) == (0, 1)
    ]
    assert flags
    assert not [flag.name for flag in flags if "(0 " not in flag.meaning]

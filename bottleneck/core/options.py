"""The options that open a source: the keyword arguments of every measurement, and the options of every command.

Names, defaults and descriptions stand here once; signatures in Python and options on the command line follow from them.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar

from ..errors import ConfigurationError, meant
from .checks import check_above_zero, check_pairs, check_positive, check_within
from .progress import Progress

if TYPE_CHECKING:
    import torch

Function = TypeVar("Function", bound=Callable[..., Any])

MEASURE, COMPUTE, MODELS = "What to measure", "How to compute", "Hugging Face models"
STATES, JUDGE = "Hidden states in files", "What may pass"
"""The groups of options in a command's help."""
BOS = (
    "Begin every window with the beginning-of-sequence token, once where the text begins with it; auto does so if the "
    "tokenizer does."
)
VOCAB = "Which columns to measure when the output layer has more rows than the tokenizer has tokens."
DATA = (
    "Text that the model reads: a corpus, a .txt file, a .jsonl file with a field text (FILE.jsonl:FIELD names "
    "another), or token ids in such a field or in a .npy file.  [default: the corpus of the run; python-docs for a "
    "Hugging Face model]"
)
DATA_IN_PYTHON = (
    "Also a text, a list of texts, token ids (N,) of one text, batches of token ids, such as a DataLoader yields: ids "
    "(B, L), or mappings with input_ids; or a data set or data frame with a column input_ids or, without one, text. "
    "Padding, which attention_mask marks, is not read; a Hugging Face model does not predict targets with the label "
    "-100. Each row is a text of its own: no context begins in the row before. A function and a torch module take "
    "token ids alone."
)
KIND = (
    "What a matrix file holds. Logits are normalized row by row; of probabilities, zeros and decimals are intervals of "
    "their logarithms; a matrix of kind matrix is measured as it is."
)
DTYPE = (
    "Type that the model runs in. Types narrower than float32, and auto (the type it was saved in), apply to the "
    "weights of a Hugging Face model and to its body; its output layer computes with its weights in float32."
)
HEAD = (
    "W, (M, d), of the softmax layer, or the Hugging Face model that has this layer; SOURCE then holds hidden states, "
    "(T, d)."
)
NORM = (
    "Weight of the final norm, (d,), or the Hugging Face model that has it, for states that were taken before it, as "
    "vLLM's are."
)
METHOD = (
    "Method that computes the singular values: factored, gram, tsqr, dense or sketch. auto takes the first that suits "
    "the matrix and fits in memory."
)
MEMORY = "Memory limit of each decomposition, such as 8GiB.  [default: half of the free memory, or all of a GPU's]"
EPS = (
    "Relative roundoff of the matrix entries, a number or a type such as bfloat16.  [default: recorded with the "
    "source, or inferred from the entries]"
)
INF = "What to do when tokens have probability 0: refuse the matrix, or leave out their columns."
PAIRS = "Use all pairs of contexts, which is exact, or N random pairs, which gives a standard error."
STATES_ALONE = "Write a folder with the hidden states and the output layer; it is a SOURCE too, and far smaller."
TOP = "Write a .parquet file of the K likeliest tokens."
TOP_KILLED = "It is for `compare`; a kill leaves no file."
SAMPLE = "Number of contexts whose Jacobian is computed when the head is not log-linear."
RANKS = "Numbers of dimensions r.  [default: 1, 2, 4, … and d]"
REFINED = "By default also those that bound the dimensions that are needed."
TRAIN = "Also train layers of these ranks, from the reduced ones; three seeds."
TRAINED = (
    "By default of the powers of two; on three quarters of the first half, with the learning rate that is best on its "
    "last quarter."
)
SAVE = "Write the trained layers: --head reads them."
SAVED = (
    "They are ``rank-64.safetensors`` and so on: ``weight`` of rank r, (M, d), its factors ``up``, (M, r), and "
    "``down``, (r, d), and ``bias`` where the model has one."
)
LIMIT = "Time limit for each token's linear program, in seconds; a token that exceeds it is reported as unknown."
WORKERS = "Number of processes.  [default: one for each processor]"
EXAMPLES = "Number of contexts to show where either of two sources is better; 0 for none."
LLAMA = "Leave tokens below e^-16 in the reference out of KL, as llama.cpp's perplexity --kl-divergence does."
INDEPENDENT = "As there, standard errors then take contexts as independent."
"""Longer help texts of options."""
DEVICES = "auto", "cpu", "cuda", "mps", "xpu"
"""The usual devices; torch knows further ones."""


class Option(NamedTuple):
    """The default of an option, and what it does."""

    default: Any
    help: str
    panel: str = ""
    """Group in a command's help; no command has an option without one."""
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    flag: str | None = None
    """Name on the command line, if it is another one."""
    check: Callable[..., None] | None = None
    """Refuses a value, a keyword argument of the option's name, that is out of range."""
    reads: bool = False
    """Whether a value names what is read: no output of a command takes its place."""
    more: str = ""
    """What holds in Python alone."""


def _check_ranks(ranks: Any) -> None:
    for r in ranks if isinstance(ranks, Iterable) else [ranks]:
        check_positive(ranks=r)


_not_negative = partial(check_within, 0)
_array = partial(Option, None, panel=STATES, metavar="FILE[:NAME]", reads=True)
_count = partial(Option, None, panel=MODELS, check=check_positive)
_limit = partial(Option, None, panel=JUDGE, check=_not_negative)


class SavedOptions(TypedDict, total=False):
    """The options of saved Hugging Face models without a text."""

    revision: Annotated[
        str | None, Option(None, "Branch, tag or commit of a model on the Hugging Face hub.", MODELS, metavar="NAME")
    ]
    vocab: Annotated[str, Option("both", VOCAB, MODELS, ("both", "model", "tokenizer"))]
    allow_pickle: Annotated[
        bool, Option(False, "Accept pickled weights; only their numbers are read, and no code in them runs.", MODELS)
    ]


class LayerOptions(SavedOptions, total=False):
    """The options of an output layer that is measured without a text."""

    bias: Annotated[str | None, _array("Bias of the output layer, (M,), where SOURCE is a file with W.")]


class HuggingFaceOptions(SavedOptions, total=False):
    """The options of Hugging Face models and their texts."""

    context_length: Annotated[
        int | None, _count("Tokens in each window of the text.  [default: the model's limit, at most 1,024]")
    ]
    stride: Annotated[
        int | None, _count("Tokens between the starts of two successive windows.  [default: half a window]")
    ]
    bos: Annotated[str, Option("auto", BOS, MODELS, ("auto", "on", "off"))]
    batch_size: Annotated[
        int | None, _count("Windows in one forward pass.  [default: as many as hold about 4,096 tokens]")
    ]
    precise: Annotated[bool, Option(False, "Compute the output layer of a Hugging Face model in float64.", MODELS)]
    dataset: Annotated[
        str | None,
        Option(
            None, "Read the text from a dataset of the Hugging Face hub.", MODELS, (), "NAME[:CONFIG]", "hf-dataset"
        ),
    ]


class Opening(HuggingFaceOptions, total=False):
    """The options that open a source; each kind of source takes some of them."""

    data: Annotated[Any, Option(None, DATA, MEASURE, metavar="CORPUS|FILE.txt", reads=True, more=DATA_IN_PYTHON)]
    split: Annotated[str, Option("test", "Split of the corpus.", MEASURE, ("train", "valid", "test"))]
    contexts: Annotated[
        int | None,
        Option(None, "Measure only the first N contexts.  [default: all]", MEASURE, metavar="N", check=check_positive),
    ]
    kind: Annotated[str, Option("log-probs", KIND, MEASURE, ("log-probs", "logits", "probabilities", "matrix"))]
    dtype: Annotated[str, Option("float32", DTYPE, MEASURE, ("float32", "float64", "bfloat16", "float16", "auto"))]
    device: Annotated[
        "str | torch.device",
        Option(
            "auto",
            "Device to compute on; auto takes a GPU if there is one.",
            COMPUTE,
            metavar="|".join([*DEVICES, "…"]),
        ),
    ]
    head: Annotated[str | None, _array(HEAD, metavar="FILE[:NAME]|MODEL")]
    bias: Annotated[str | None, _array("Bias of the softmax layer, (M,).")]
    norm: Annotated[str | None, _array(NORM, metavar="FILE[:NAME]|MODEL")]
    scale: Annotated[float | None, Option(None, "Factor of the logits.  [default: 1]", STATES, metavar="NUMBER")]
    softcap: Annotated[float | None, Option(None, "Soft cap c of the logits.", STATES, metavar="NUMBER")]
    vocab_size: Annotated[int | None, Option(None, "Vocabulary size M of a function from ids to logits.")]
    tokenizer: Annotated[Any, Option(None, "Tokenizer of a loaded Hugging Face model.")]
    hidden: Annotated[
        Any, Option(None, "Hidden states for a head, (T, hidden_size): an array, a tensor, or blocks of rows.")
    ]
    targets: Annotated[Any, Option(None, "(T,), ids of the tokens that follow those hidden states, if they are known.")]


class Spectral(TypedDict, total=False):
    """How singular values are computed."""

    method: Annotated[str, Option("auto", METHOD, COMPUTE, metavar="METHOD")]
    max_memory: Annotated[int | str | None, Option(None, MEMORY, COMPUTE, metavar="SIZE", more="Also bytes.")]
    width: Annotated[
        int, Option(1024, "Number of dimensions of the sketch, for the method sketch.", COMPUTE, check=check_positive)
    ]


class Ranking(TypedDict, total=False):
    """How a rank is counted from them."""

    eps: Annotated[str | float | None, Option(None, EPS, COMPUTE, metavar="DTYPE|NUMBER")]
    inf: Annotated[str, Option("refuse", INF, COMPUTE, ("refuse", "drop-columns"))]
    estimate_hidden_size: Annotated[
        bool, Option(False, "Estimate the hidden size from the row-centred spectrum.", MEASURE)
    ]


class MeasurementOptions(Opening, total=False):
    """The options of every measurement of a matrix."""

    progress: Annotated[Progress | bool, Option(False, "Where to report; True means standard error.")]


class KldOptions(MeasurementOptions, total=False):
    """The options of `kld`: which pairs of contexts a divergence is of."""

    pairs: Annotated[Literal["all"] | int, Option("all", PAIRS, MEASURE, metavar="all|N", check=check_pairs)]
    seed: Annotated[int, Option(0, "Seed of the random pairs.", MEASURE, metavar="N", check=_not_negative)]


class DumpOptions(MeasurementOptions, total=False):
    """The options of `dump`: what it writes in place of all log-probabilities."""

    states: Annotated[bool, Option(False, STATES_ALONE, MEASURE)]
    top: Annotated[int | None, Option(None, TOP, MEASURE, metavar="K", check=check_positive, more=TOP_KILLED)]


class GradientOptions(MeasurementOptions, total=False):
    """The options of `gradient`: at which contexts a Jacobian is computed."""

    sample: Annotated[int, Option(64, SAMPLE, MEASURE, metavar="N", check=check_positive)]


class NeedOptions(MeasurementOptions, total=False):
    """The options of `need`: which reduced layers are measured, and whether some are trained."""

    ranks: Annotated[
        Sequence[int] | None, Option(None, RANKS, MEASURE, metavar="R,R,…", more=REFINED, check=_check_ranks)
    ]
    train: Annotated[bool, Option(False, TRAIN, MEASURE, more=TRAINED)]
    save: Annotated[str | Path | None, Option(None, SAVE, "Output", metavar="FOLDER", more=SAVED)]


class ArgmaxableOptions(MeasurementOptions, total=False):
    """The options of `argmaxable`: how long and by how many processes it is decided which tokens can be the argmax."""

    limit: Annotated[float | None, Option(60.0, LIMIT, COMPUTE, metavar="SECONDS", check=check_above_zero)]
    workers: Annotated[
        int | None, Option(None, WORKERS, COMPUTE, metavar="N", check=check_positive, more="In Python it is 1.")
    ]


class ComparisonOptions(MeasurementOptions, total=False):
    """The options of a comparison: what it compares and shows, and the limits that a model has to keep."""

    examples: Annotated[
        int,
        Option(5, EXAMPLES, MEASURE, metavar="N", more="So many are kept for each model.", check=_not_negative),
    ]
    like_llama_cpp: Annotated[bool, Option(False, LLAMA, MEASURE, more=INDEPENDENT)]
    temperature: Annotated[
        float,
        Option(
            1.0,
            "Divide all log-probabilities by this, and normalize them again.",
            MEASURE,
            metavar="NUMBER",
            check=partial(check_within, 0.001, 1000),
        ),
    ]
    floor: Annotated[
        bool, Option(False, "Also measure KL of the reference rounded to the next narrower type.", MEASURE)
    ]
    max_kl: Annotated[
        float | None,
        _limit("Largest KL(P‖Q) that passes; every limit has to hold at the end of its 95 % interval.", metavar="NATS"),
    ]
    min_agreement: Annotated[
        float | None,
        _limit(
            "Smallest share of contexts with the same likeliest token that passes, such as 0.98.",
            metavar="SHARE",
            check=partial(check_within, 0, 1),
        ),
    ]
    max_ppl_ratio: Annotated[
        float | None,
        _limit("Largest perplexity that passes, over the reference's, such as 1.01.", metavar="RATIO"),
    ]


def _hints(options: type) -> list[tuple[str, Any]]:
    """Return the names and hints of such a class, those of some kinds of sources last."""
    last = ("", STATES, MODELS)
    return sorted(
        options.__annotations__.items(),
        key=lambda item: last.index(panel) if (panel := item[1].__metadata__[0].panel) in last else 0,
    )


def table(options: type) -> Mapping[str, Option]:
    """Return the options of such a class by name."""
    return {name: hint.__metadata__[0] for name, hint in _hints(options)}


OPENING = table(Opening)
HUGGING_FACE: Mapping[str, Option] = {name: OPENING[name] for name in HuggingFaceOptions.__annotations__}
LAYER = table(LayerOptions)
COMPARE, KLD, GRADIENT, NEED, ARGMAXABLE, DUMP = (
    {name: option for name, option in table(options).items() if option.panel and name not in OPENING}
    for options in (ComparisonOptions, KldOptions, GradientOptions, NeedOptions, ArgmaxableOptions, DumpOptions)
)
RANK = {**table(Spectral), **table(Ranking)}
"""The options of a rank, beside those that open its source."""


def _describe(options: type) -> None:
    """Add a line for each option to the docstring of a class of options."""
    lines = []
    for name, option in table(options).items():
        values = f"One of {', '.join(map(repr, option.choices))}." if option.choices else ""
        lines.append(f"* ``{name}``: {' '.join(filter(None, (option.help, values, option.more)))}")
    if lines[-1] not in str(options.__doc__):
        options.__doc__ = "\n\n".join([str(options.__doc__), "\n".join(lines)])


def takes(options: type) -> Callable[[Function], Function]:
    """Return a decorator for a function with ``**options`` of such a class, whose docstring then describes them.

    ``inspect.signature``, and so ``help`` and notebooks, show every option; an unknown one, or too many by place, is a
    `TypeError` that names the function and its arguments.
    """

    def decorate(function: Function) -> Function:
        _describe(options)
        own = inspect.signature(function)
        named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=hint.__metadata__[0].default,
                annotation=getattr(hint.__origin__, "__forward_arg__", hint.__origin__),
            )
            for name, hint in _hints(options)
        ]
        shown = own.replace(parameters=[*named, *more])
        places = [each.name for each in named if each.kind is not each.KEYWORD_ONLY]

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            if len(args) > len(places):
                raise TypeError(
                    f"{function.__name__}() takes {' and '.join(places)} by place, several sources or models as a "
                    "list, and all else by name, such as hidden=… or data=…"
                )
            if unknown := [name for name in given if name not in shown.parameters]:
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {unknown[0]!r}; it takes "
                    f"{', '.join(shown.parameters)}{meant(unknown[0], shown.parameters)}"
                )
            return function(*args, **given)

        checked.__signature__ = shown  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return decorate


def check_options(options: Mapping[str, Option], values: Mapping[str, Any]) -> None:
    """Refuse values that are not among the choices of their options, or out of their range."""
    for name, option in options.items():
        if option.choices and values[name] not in option.choices:
            raise ConfigurationError(f"unknown {name} {values[name]!r}; it is one of {', '.join(option.choices)}")
        if option.check:
            option.check(**{name: values[name]})

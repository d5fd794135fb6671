"""The settings of a run's task as the Launch page offers them: where prompts come from, what is right, what it pays."""

from __future__ import annotations

from app.views.setting import Setting

TASK = (
    Setting("task.name", "Task", "choice",
        "Where prompts and their verifier come from: sums that ship with the lab, a dataset file of yours, or puzzles "
        "that are made anew."),
    Setting("task.pool_size", "Training prompts", "int",
        "A fixed pool, walked in shuffled epochs, so that prompts come back. With few prompts the model "
        "memorises them. Where a task has fewer, all of them are taken.",
        1, 100_000, 16),
)  # fmt: skip

FILE = Setting("task.file.path", "Dataset file", "text",
    "The path of a .jsonl, .parquet or .csv file on the lab's machine, with a row for each prompt. It is read where it "
    "is, and never changed. A relative path starts in the folder that the lab was started in, else in the lab's own.",
    none="~/data/my-sums.jsonl")  # fmt: skip

COLUMNS = (
    Setting("task.file.prompt", "Prompt column", "text",
        "What the model is asked: text, or a chat of one message. a.b is the field b within the column a."),
    Setting("task.file.answer", "Answer column", "text",
        "What a response is compared with: text or a number. Of a worked solution that ends in #### 42, as in GSM8K, "
        "it is what stands after the ####."),
)  # fmt: skip

SPLIT = (
    Setting("task.file.held_out", "Held out", "float",
        "The share of prompts that are never trained on. A hash of a prompt's text decides, so a prompt keeps its side "
        "whatever else is in the file.",
        0.01, 0.9, 0.05),
    Setting("task.file.template", "Prompt template", "text",
        "What the model reads: {prompt} stands for the row's prompt. Say here how to answer, such as: {prompt} Put the "
        "answer in \\boxed{}."),
)  # fmt: skip

GENERATORS: dict[str, tuple[Setting, ...]] = {
    "arithmetic": (
        Setting("task.generator.terms", "Numbers, at most", "int",
            "In a chain of sums; at least 2.",
            2, 12, 1),
        Setting("task.generator.digits", "Digits, at most", "int",
            "Of each number.",
            1, 6, 1),
        Setting("task.generator.products", "Products and brackets", "flag",
            "Multiplication, brackets and negative numbers too."),
    ),
    "geometry": (
        Setting("task.generator.shape", "Shape", "choice",
            "angles: the last angle of a polygon. triangles: an angle or the incircle's radius of a triangle given by "
            "its corners, far harder.",
            choices=("angles", "triangles")),
        Setting("task.generator.sides", "Sides, at most", "int",
            "Of the polygon whose last angle is asked for; triangles have three.",
            3, 10, 1),
    ),
    "knights_knaves": (
        Setting("task.generator.people", "People", "int",
            "Each says one thing; each is a knight, who tells the truth, or a knave, who lies.",
            2, 6, 1),
        Setting("task.generator.depth", "Depth", "int",
            "How deep what somebody says may nest: 1 is “Mia is a knave”.",
            1, 4, 1),
        Setting("task.generator.width", "Width", "int",
            "What an and, or an or, joins at most; less than twice the people.",
            2, 4, 1),
    ),
    "countdown": (
        Setting("task.generator.numbers", "Numbers, at most", "int",
            "All are to be used once; at least 3.",
            3, 6, 1),
        Setting("task.generator.largest", "Largest number", "int",
            "Of those to be used.",
            5, 100, 5),
        Setting("task.generator.target", "Largest target", "int",
            "The number to be reached is 10 to this.",
            20, 999, 10),
    ),
}  # fmt: skip
"""By the name of the task."""

VERIFIER = (
    Setting("task.verify.kind", "Verifier", "choice",
        "auto: the task's own; of a file, exact. exact: the same text. numeric: the same number. choice: the same "
        "letter, A to E. regex: what a pattern finds is the answer. math: an equal formula.",
        choices=("auto", "exact", "numeric", "choice", "regex", "math")),
    Setting("task.verify.read", "Where the answer stands", "choice",
        "auto: in the response's last \\boxed{} or <answer>, after ####, else where the verifier looks for it. boxed: "
        "in a box, or it is wrong. whole: the response is the answer.",
        choices=("auto", "boxed", "whole")),
)  # fmt: skip

TOLERANCE = Setting("task.verify.tolerance", "Tolerance", "float",
    "The distance that still counts as the same number; beyond 1, as a share of the answer.",
    0.0, 1.0, 0.01)  # fmt: skip
PATTERN = Setting("task.verify.pattern", "Pattern", "text",
    "A regular expression; the first group of its last match must be the answer. One that takes longer than a second "
    "is stopped: the response is wrong and counted as timed out.")  # fmt: skip
IGNORE_CASE = Setting("task.verify.ignore_case", "Ignore case", "flag",
    "yes and Yes are the same.")  # fmt: skip
SECONDS = Setting("task.verify.seconds", "Time limit (s)", "float",
    "For one response. One that takes longer is wrong, and counted as timed out.",
    0.05, 60.0, 1.0)  # fmt: skip

OF_VERIFIER: dict[str, tuple[Setting, ...]] = {
    "exact": (IGNORE_CASE,), "numeric": (TOLERANCE,), "regex": (PATTERN, IGNORE_CASE), "math": (SECONDS,),
}  # fmt: skip
"""What a verifier has of its own."""

REWARD = (
    Setting("task.reward.correct", "Correct", "float",
        "What a right response gains. Right and wrong on every page go by the verifier alone, whatever this is.",
        0.0, 100.0, 0.1),
    Setting("task.reward.length", "Length", "float",
        "What the longest response loses; a shorter one loses in proportion to its tokens.",
        0.0, 100.0, 0.1),
    Setting("task.reward.format", "Format", "float",
        "What a response of the right form gains, right or wrong.",
        0.0, 100.0, 0.1),
    Setting("task.reward.format_pattern", "The right form", "text",
        "A regular expression that is found in it. Left empty: a \\boxed{} with something in it."),
)  # fmt: skip


def all_task_settings() -> list[Setting]:
    """Every setting of a task that has a widget."""
    generators = [setting for group in GENERATORS.values() for setting in group]
    return [*TASK, FILE, *COLUMNS, *SPLIT, *generators, *VERIFIER, TOLERANCE, PATTERN, IGNORE_CASE, SECONDS, *REWARD]

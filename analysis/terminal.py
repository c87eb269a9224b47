"""What commands print with: screens, tables, sentences, JSON; each in a module of its own."""

from __future__ import annotations

from .columns import Cells, cells, lines, show_table
from .job_screen import bar, show_headline, show_job, show_split
from .names import shorter
from .replay_screen import estimate, policy_words
from .screen import clean, console, to_json
from .sentences import (
    began_apart,
    began_sentence,
    clocks_sentence,
    clocks_word,
    mostly_paired,
    pipeline_sentence,
    reason_words,
    straggler_sentence,
    unseen_sentence,
)
from .stragglers_screen import show_stragglers

__all__ = [
    "Cells",
    "bar",
    "began_apart",
    "began_sentence",
    "cells",
    "clean",
    "clocks_sentence",
    "clocks_word",
    "console",
    "estimate",
    "lines",
    "mostly_paired",
    "pipeline_sentence",
    "policy_words",
    "reason_words",
    "shorter",
    "show_headline",
    "show_job",
    "show_split",
    "show_stragglers",
    "show_table",
    "straggler_sentence",
    "to_json",
    "unseen_sentence",
]

"""Rows that views of the SQL library would compute again for every query, made once with a job.

Each is exactly what its view gives over the job's other tables (`queries/` has the definitions):
where they are missing the view computes, where they are there it reads. Whatever is out of the
ordinary (a time that is not there, a step without length) is left to the views: then a job has
none of these rows, and nobody needs to know.
"""

from pathlib import Path

SQL = Path(__file__).parent
"""Where the modules of the SQL library are by which some of these rows are made (`rails.py`)."""

OF_EVENTS = frozenset(
    {"_made_breakdown", "_made_gaps", "_made_composition", "_made_kernels", "_made_covered",
     "_made_sm_parts", "_made_marks", "_made_compared", "_made_compared_kernels",
     "_made_stretches", "_made_longest_gaps",
     "_made_tasks", "_made_task_edges", "_made_task_parts", "_made_task_words"}
)  # fmt: skip
"""Tables that follow from `events`: they hold no longer where rows of that were pruned, or where
kernels are said to be of other categories."""

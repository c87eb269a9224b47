"""Colours of the classes of time, on pages and in notebooks."""

from __future__ import annotations

COLOURS: dict[str, str] = {
    "compute": "#0072B2",
    "compute_with_comm": "#56B4E9",
    "exposed_wait": "#D55E00",
    "exposed_transfer": "#E69F00",
    "exposed_comm_unsplit": "#B8860B",
    "exposed_memcpy": "#CC79A7",
    "idle_data_loading": "#F0E442",
    "idle_launch_bound": "#7f7f7f",
    "idle_waiting_for_host": "#a6a6a6",
    "idle_waiting_for_stream": "#5e5e5e",
    "idle_unknown": "#c9c9c9",
}
"""Okabe and Ito's palette, which colour-blind readers can tell apart; idle is grey."""

"""Findings of a job that is too large for one graph in memory: rank by rank, joined by what meets.

Tasks of different ranks meet in the joins of collectives alone. So the ranks of a share are put in
order by themselves and kept in files (`parts`), and what the joins ask of them is contracted
(`contract`): the end of any task is the latest of a few earlier moments, each plus a fixed time.
Sums and maxima of integers are exact in any order, so that all findings are those of the whole
graph; of tasks that tie in everything the first by rank counts.
"""

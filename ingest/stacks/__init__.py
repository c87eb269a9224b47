"""Profilers of other stacks: rocprofv3 and Ascend."""

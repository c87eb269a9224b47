"""Stand-ins for what the warehouse's tests do not test: a made-up format, matching left out."""

import json
import sys
import types

from retime.ingest import detect


def resolve(collectives, ranks, comms, steps):
    """Matching that leaves every row as it is."""
    return types.SimpleNamespace(
        collectives=collectives, ranks=ranks, comms=comms, problems=[], clocks="one-host"
    )


def use_fake_format(set_item=dict.__setitem__):
    """Makes `fake_trace` the only known format and takes matching out."""
    known_are({"fake": detect.Format("fake_trace", "made up for tests", "timeline")})
    module = types.ModuleType("retime.ingest.matching.resolution")
    module.resolve, module.Resolved = resolve, None
    set_item(sys.modules, "retime.ingest.matching.resolution", module)


def known_are(formats):
    """Makes these the known formats, in their order: the first that claims a file has it."""
    detect.FORMATS.clear()
    detect.FORMATS.update(formats)


def write_trace(path, rank, **said):
    """A made-up trace of a rank; see `fake_trace` for what it may say."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("FAKE " + json.dumps({"rank": rank, **said}))
    return path

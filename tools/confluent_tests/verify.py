"""The checks of tests/integration/integration_test.py that make a consumer, one by one. Prints one JSON object each.

python verify.py BOOTSTRAP (ours|theirs) NAME
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path


def main() -> None:
    bootstrap, kind, name = sys.argv[1:4]
    sys.path[:0] = [str(Path.cwd()), str(Path(__file__).parent)]
    if kind == "ours":
        import in_place  # noqa: F401  (that it is imported is all)
    checks = importlib.import_module("tests.integration.integration_test")
    vars(checks).update(bootstrap_servers=bootstrap, topic=f"verify-{kind}-{name}", testconf={}, with_progress=False)
    try:
        checks.verify_producer()
        if name not in ("verify_consumer", "verify_throttle_cb"):
            checks.verify_producer_performance(with_dr_cb=False)  # the million records of which the others read
        getattr(checks, name)()
    except BaseException:  # noqa: BLE001  # a check may end by anything, also by sys.exit
        print(json.dumps({"passed": False, "why": traceback.format_exc()[-2_000:]}), flush=True)  # noqa: T201
    else:
        print(json.dumps({"passed": True, "why": ""}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

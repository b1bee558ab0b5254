"""Where the checks in Python find the site. From the Rust harness (`tests/http_clients.rs`):

  SITE_URL        in the clear
  SITE_TLS_URL    with TLS
  SITE_CA         the authority that has signed its certificate
  ORIGIN_URL      the site itself, to ask what came
  GATEKEEPER_PID  the gatekeeper's process; absent when the checks run against the site itself
"""

import json
import os
import urllib.request

URL = os.environ["SITE_URL"]
TLS_URL = os.environ["SITE_TLS_URL"]
CA = os.environ["SITE_CA"]
ORIGIN = os.environ["ORIGIN_URL"]


def origin(path):
    """What the site itself answers."""
    with urllib.request.urlopen(ORIGIN + path) as response:
        return response.read().decode()


def counts():
    """How many connections and requests have come to the site."""
    return json.loads(origin("/counts"))

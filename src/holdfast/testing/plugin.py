"""What pytest loads when holdfast is installed: fixtures for tests that need a broker.

Rule: importing this module stays light, because every pytest run on the machine imports it. A fixture imports what it
needs when it is used.
"""

from __future__ import annotations

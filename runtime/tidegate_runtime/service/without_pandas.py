"""Imported first by a service's program: NumPy and pandas can't be imported in its process.

Its images have neither, and to load them is a third of the start where they are installed.
"""

import sys

from tidegate_runtime.service.without_numpy import LeftOut

sys.meta_path.insert(0, LeftOut())

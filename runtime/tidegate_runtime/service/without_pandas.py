"""Imported first by a service's program: Arrow looks for pandas once, at the first constant of a
module, and loading it takes a third of the start.
"""

from tidegate_runtime.service.arrow_setup import leave_out_pandas

leave_out_pandas()

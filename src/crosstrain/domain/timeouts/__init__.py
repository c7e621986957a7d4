"""Every duration that something waits for, derived from the length of a round, the bytes that move and the measured link.

This package is where such numbers come from: programs take the constants, the run file its defaults, and `derive` puts what
a given run needs beside what its run file sets. A timeout shorter than what it waits for makes healthy work fail and
repeats it; one much longer hides a fault. So each is a small multiple of the slowest healthy case. The reason for a number
is in its row, below it in the same file.
"""

from crosstrain.domain.timeouts.circumstances import *
from crosstrain.domain.timeouts.flower import *
from crosstrain.domain.timeouts.mailbox import *
from crosstrain.domain.timeouts.programs import *
from crosstrain.domain.timeouts.requests import *
from crosstrain.domain.timeouts.rounds import *
from crosstrain.domain.timeouts.row import *
from crosstrain.domain.timeouts.server import *
from crosstrain.domain.timeouts.table import *
from crosstrain.domain.timeouts.transfers import *

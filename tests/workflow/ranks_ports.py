"""On two ranks: the addresses at which this rank and its launcher listen or are connected; each rank prints them."""

import json

import numpy as np
import psutil

from study.backends.tensorflow import devices
from study.backends.tensorflow.horovod import Horovod


def main():
    devices.limit_threads(1)
    ranks = Horovod()
    ranks.gather(np.ones(3).tolist())  # all connections are there
    process = psutil.Process()
    launcher = [each for each in process.parents() if "horovodrun.py" in " ".join(each.cmdline())]
    found = {
        "launcher_listens": _addresses(launcher, psutil.CONN_LISTEN),
        "rank_listens": _addresses([process], psutil.CONN_LISTEN),
        "rank_is_connected": _addresses([process], psutil.CONN_ESTABLISHED),
    }
    print("RESULT " + json.dumps(found))
    ranks.close()


def _addresses(processes, status):
    sockets = [socket for process in processes for socket in process.net_connections(kind="inet")]
    return sorted({socket.laddr.ip for socket in sockets if socket.status == status})


main()

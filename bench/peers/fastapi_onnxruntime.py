from __future__ import annotations

import sys

import numpy as np
from fastapi_app import Rows, serve
from session import open_session

session = open_session(sys.argv[1])


def forecast(series: Rows) -> Rows:
    history = np.array([series], np.float32)
    return session.run(None, {"history": history})[0][0].tolist()


serve(forecast, int(sys.argv[2]))

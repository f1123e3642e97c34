import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Small models gain nothing from threads, and lose much where cores are shared."""
    torch.set_num_threads(1)

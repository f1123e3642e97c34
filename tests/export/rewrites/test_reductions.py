import torch

from foretell.export.rewrites.reductions import mean_over_time, smallest


def test_mean_over_time(float64, equal):
    series = torch.randn(3, 7, 2)
    equal(mean_over_time(series), series.mean(dim=1, keepdim=True))


def test_smallest(float64, equal):
    values = torch.randn(5, 9)
    equal(smallest(values), values.amin(dim=1, keepdim=True))
    equal(smallest(values[:, :1]), values[:, :1])

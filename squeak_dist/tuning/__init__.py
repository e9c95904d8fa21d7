"""Parameters from a sample of the rows: kernel, length scales and γ."""

from squeak_dist.tuning.gamma import (
    SampleSpectrum,
    choose_gamma,
    sample_spectrum,
    spectrum_penalty,
)
from squeak_dist.tuning.kernel_choice import (
    Candidate,
    Choice,
    LeftOut,
    choose_kernel,
    leave_one_out,
    log_loss,
    squared_loss,
)
from squeak_dist.tuning.length_scales import (
    LikelyKernel,
    likely_directions,
    likely_kernel,
    median_length_scale,
)
from squeak_dist.tuning.marginal_likelihood import (
    Radial,
    TuningRows,
    likelihood_of_directions,
    negative_log_likelihood,
)

__all__ = [
    "Candidate",
    "Choice",
    "LeftOut",
    "LikelyKernel",
    "Radial",
    "SampleSpectrum",
    "TuningRows",
    "choose_gamma",
    "choose_kernel",
    "leave_one_out",
    "likelihood_of_directions",
    "likely_directions",
    "likely_kernel",
    "log_loss",
    "median_length_scale",
    "negative_log_likelihood",
    "sample_spectrum",
    "spectrum_penalty",
    "squared_loss",
]

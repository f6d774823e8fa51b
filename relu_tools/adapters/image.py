"""Steps of the operators that sample images: GridSample, RoiAlign, NonMaxSuppression."""

from __future__ import annotations

from relu_tools.adapters import adapter, same
from relu_tools.adapters.sampling import grid_sampled, roi_aligned

same("GridSample", 16, 20, 22)
same("RoiAlign", 16, 22)
same("NonMaxSuppression", 10, 11)

NAMED = {"bilinear": "linear", "bicubic": "cubic"}


@adapter("GridSample", 16, 20)
def grid_sample_named(op, X, grid, *, mode, **same):
    """16 says bilinear and bicubic, 20 linear and cubic, since it takes any number of spatial dimensions."""
    return op.GridSample(X, grid, mode=NAMED.get(mode, mode), **same)


@adapter("GridSample", 20, 16)
def grid_sample_of_images(op, X, grid, *, mode, **same):
    """20 takes any number of spatial dimensions, 16 two, and says bilinear and bicubic for linear and cubic.

    For another number of them the values are gathered.
    """
    if op.rank(X) != 4:
        op.rounds()
        return grid_sampled(op, X, grid, mode, **same)
    return op.GridSample(X, grid, mode={v: k for k, v in NAMED.items()}.get(mode, mode), **same)


@adapter("RoiAlign", 10, 16)
def roi_align_unshifted(op, X, rois, batch_indices, **same):
    """16 shifts the coordinates by half a pixel unless told otherwise, 10 never does.

    16 is told so.
    """
    return op.RoiAlign(X, rois, batch_indices, coordinate_transformation_mode="output_half_pixel", **same)


@adapter("RoiAlign", 16, 10)
def roi_align_shifted(op, X, rois, batch_indices, *, coordinate_transformation_mode, **same):
    """16 shifts the coordinates by half a pixel unless told otherwise, 10 never does.

    Shifted regions would give the same but for those smaller than a pixel, which 10 widens: so the values are gathered.
    """
    if coordinate_transformation_mode == "output_half_pixel":
        return op.RoiAlign(X, rois, batch_indices, **same)
    op.rounds()
    return roi_aligned(op, X, rois, batch_indices, half_pixel=True, **same)

"""Compiled crops: of a padded image, or resized, bit-identical to Pillow's bilinear filter.

A plane is resized along its first axis, transposed, and resized again, so that both passes add whole rows.
"""

import math

import numpy as np
from numba import njit

from memo_tta.views.compiler import kernel

PRECISION = 22  # bits of the weights
ROUNDING = 1 << (PRECISION - 1)
TILE = 16


@kernel("(uint8[:,:,::1], int64[:,::1], boolean[::1], uint8[:,:,:,::1])")
def cut(padded, box, flip, out):
    """Write crops of a (channels, height, width) image, flipped or not, to out, (n, channels, ...)."""
    height, width = out.shape[2], out.shape[3]
    for view in range(len(out)):
        top, left = box[view, 0], np.uint64(box[view, 1])
        for c in range(len(padded)):
            for y in range(height):
                source, line = np.uint64(top + y), out[view, c, y]
                if flip[view]:
                    for x in range(width):
                        line[x] = padded[c, source, left + np.uint64(width - 1 - x)]
                else:
                    for x in range(width):
                        line[x] = padded[c, source, left + np.uint64(x)]


@njit
def triangle(x):
    return max(0.0, 1.0 - abs(x))


@njit
def shares(length, size):
    """Return the first input pixel, the number of input pixels and their weights for each output pixel."""
    scale = length / size
    support = max(scale, 1.0)
    first, number = np.empty(size, np.int64), np.empty(size, np.int64)
    weights = np.zeros((size, 2 * math.ceil(support) + 2), np.int32)
    for i in range(size):
        centre = (i + 0.5) * scale
        low, high = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), length)
        total = 0.0
        for j in range(low, high):
            total += triangle((j - centre + 0.5) * (1.0 / support))
        for j in range(low, high):
            share = triangle((j - centre + 0.5) * (1.0 / support)) / total
            weights[i, j - low] = int(0.5 + share * (1 << PRECISION))
        while high > low + 1 and weights[i, high - low - 1] == 0:
            high -= 1
        first[i], number[i] = low, high - low
    return first, number, weights


@njit
def weigh(rows, first, number, weights, start, sums, out):
    """Write the weighted mean of neighbouring rows, mostly two to four, from column `start` on, to out."""
    a, b = np.uint64(first), np.uint64(first + min(1, number - 1))
    c, d = np.uint64(first + min(2, number - 1)), np.uint64(first + min(3, number - 1))
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    column = np.uint64(start)
    if number <= 2:
        for x in range(out.size):
            i = column + np.uint64(x)
            out[x] = np.uint8(np.int32(ROUNDING + w0 * rows[a, i] + w1 * rows[b, i]) >> PRECISION)
    elif number <= 4:
        for x in range(out.size):
            i = column + np.uint64(x)
            total = ROUNDING + w0 * rows[a, i] + w1 * rows[b, i] + w2 * rows[c, i] + w3 * rows[d, i]
            out[x] = np.uint8(np.int32(total) >> PRECISION)
    else:
        for x in range(out.size):
            sums[x] = ROUNDING
        for k in range(number):
            weight, row = weights[k], np.uint64(first + k)
            for x in range(out.size):
                sums[x] += np.int32(weight * rows[row, column + np.uint64(x)])
        for x in range(out.size):
            out[x] = np.uint8(sums[x] >> PRECISION)


@njit
def turn(image, out):
    """Transpose, in tiles that fit the cache."""
    height, width = out.shape
    for top in range(0, height, TILE):
        for left in range(0, width, TILE):
            for y in range(top, min(top + TILE, height)):
                for x in range(left, min(left + TILE, width)):
                    out[np.uint64(y), np.uint64(x)] = image[np.uint64(x), np.uint64(y)]


@njit
def resize_plane(plane, corner, extent, flips, narrow, turned, sums, out):
    """Resize the box of a plane at `corner`, of `extent`, to the transpose of out: first axis first."""
    size = len(narrow)
    first, number, weights = shares(extent[0], size)
    for i in range(size):
        line = narrow[size - 1 - i if flips[0] else i, : extent[1]]
        weigh(plane, corner[0] + first[i], number[i], weights[i], corner[1], sums, line)
    turn(narrow, turned[: extent[1]])
    size = len(out)
    first, number, weights = shares(extent[1], size)
    for i in range(size):
        line = out[size - 1 - i if flips[1] else i]
        weigh(turned, first[i], number[i], weights[i], 0, sums, line)


@kernel("(uint8[:,:,::1], uint8[:,:,::1], int64[:,::1], boolean[::1], uint8[:,:,:,::1])")
def resize(rows, columns, box, flip, out):
    """Write resized boxes of an image, channels first, and of its transpose, to out, (n, channels, ...)."""
    to_height, to_width, longest = out.shape[2], out.shape[3], max(rows.shape[1:])
    low, low_turned = np.empty((to_height, longest), np.uint8), np.empty((longest, to_height), np.uint8)
    narrow, narrow_turned = np.empty((to_width, longest), np.uint8), np.empty((longest, to_width), np.uint8)
    transposed = np.empty((to_width, to_height), np.uint8)
    sums = np.empty(max(to_height, to_width, longest), np.int32)
    for view in range(len(out)):
        top, left, height, width = box[view]
        for c in range(len(rows)):
            # The order of the axes changes the rounding; this is the order of Pillow 13 and newer.
            if height > to_height and height - to_height > 2 * (width - to_width):
                flips, extent = (False, flip[view]), (height, width)
                resize_plane(rows[c], (top, left), extent, flips, low, low_turned, sums, transposed)
                turn(transposed, out[view, c])
            else:
                flips, extent, to = (flip[view], False), (width, height), out[view, c]
                resize_plane(columns[c], (left, top), extent, flips, narrow, narrow_turned, sums, to)

"""Compiled crops: of a padded image, or resized, bit-identical to Pillow's bilinear filter.

A plane is resized along its first axis, transposed, and resized again, so that both passes add whole rows.
"""

import math

import numpy as np
from numba import njit

from memo_tta.views.compiler import kernel

CHANNELS = 3
PRECISION = 22  # bits of the weights
ROUNDING = 1 << (PRECISION - 1)
TILE = 16


@kernel("(uint8[:,:,::1], int64[:,::1], boolean[::1], uint8[:,:,:,::1])")
def cut(padded, box, flip, out):
    """Write square crops of a (3, height, width) image, flipped or not, to out, (n, 3, size, size)."""
    size = out.shape[3]
    for view in range(len(out)):
        top, left = box[view, 0], np.uint64(box[view, 1])
        for c in range(CHANNELS):
            for y in range(size):
                source, line = np.uint64(top + y), out[view, c, y]
                if flip[view]:
                    for x in range(size):
                        line[x] = padded[c, source, left + np.uint64(size - 1 - x)]
                else:
                    for x in range(size):
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
    """Resize the box of a plane at `corner`, of `extent`, to a square: first axis first, then the second."""
    size = len(out)
    first, number, weights = shares(extent[0], size)
    for i in range(size):
        line = narrow[size - 1 - i if flips[0] else i, : extent[1]]
        weigh(plane, corner[0] + first[i], number[i], weights[i], corner[1], sums, line)
    turn(narrow, turned[: extent[1]])
    first, number, weights = shares(extent[1], size)
    for i in range(size):
        line = out[size - 1 - i if flips[1] else i]
        weigh(turned, first[i], number[i], weights[i], 0, sums, line)


@kernel("(uint8[:,:,::1], uint8[:,:,::1], int64[:,::1], boolean[::1], uint8[:,:,:,::1])")
def resize(rows, columns, box, flip, out):
    """Write resized boxes of an image, (3, height, width) and transposed, to out, (n, 3, size, size)."""
    size, longest = out.shape[3], max(rows.shape[1:])
    narrow, turned = np.empty((size, longest), np.uint8), np.empty((longest, size), np.uint8)
    square, sums = np.empty((size, size), np.uint8), np.empty(max(size, longest), np.int32)
    for view in range(len(out)):
        top, left, height, width = box[view]
        for c in range(CHANNELS):
            # The order of the axes changes the rounding; this is the order of Pillow 13 and newer.
            if height > size and height - size > 2 * (width - size):
                flips = (False, flip[view])
                resize_plane(rows[c], (top, left), (height, width), flips, narrow, turned, sums, square)
                turn(square, out[view, c])
            else:
                flips, to = (flip[view], False), out[view, c]
                resize_plane(columns[c], (left, top), (width, height), flips, narrow, turned, sums, to)

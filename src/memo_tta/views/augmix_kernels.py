"""Compiled AugMix: chains of operations on planes of bytes, bit-identical to Pillow, and their mix.

An image is uint8 (channels, height * width). Look-up operations are not applied at once but composed into one
table per channel until a warp follows. Pixels are indexed by unsigned integers: a signed index may be
negative, and checking for that at every pixel prevents vectorisation.
"""

import math

import numpy as np
from numba import njit

from memo_tta.views.compiler import kernel

# The order of augmix_plan.OPERATIONS; repeated, because cached code must depend on this file alone.
AUTOCONTRAST, EQUALIZE, ROTATE, SOLARIZE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y, POSTERIZE = range(9)
VALUES = 256
BLOCK = 2048  # pixels that are mixed at a time, so that their sums stay in the L1 cache
OUTSIDE = NOT_WARPED = -1


@njit
def count(image, counts):
    """Count the values of each channel, in four histograms: equal neighbours would stall each other."""
    parts = np.empty((4, VALUES), np.int32)
    for c in range(len(image)):
        plane = image[c]
        for v in range(VALUES):
            parts[0, v] = parts[1, v] = parts[2, v] = parts[3, v] = 0
        whole = plane.size // 4
        for i in range(whole):
            for j in range(4):
                parts[j, plane[4 * i + j]] += 1
        for i in range(4 * whole, plane.size):
            parts[0, plane[i]] += 1
        for v in range(VALUES):
            counts[c, v] = parts[0, v] + parts[1, v] + parts[2, v] + parts[3, v]


@njit
def autocontrast(table, counts):
    low, high = VALUES, -1
    for v in range(VALUES):
        if counts[v]:
            low, high = min(low, table[v]), max(high, table[v])
    if high <= low:
        return
    scale = 255.0 / (high - low)
    offset = -low * scale
    for v in range(VALUES):
        table[v] = np.uint8(min(max(int(table[v] * scale + offset), 0), 255))


@njit
def equalize(table, counts):
    mapped = np.zeros(VALUES, np.int32)
    for v in range(VALUES):
        mapped[table[v]] += counts[v]
    total, last = 0, 0
    for v in range(VALUES):
        if mapped[v]:
            last = mapped[v]
            total += last
    step = (total - last) // 255
    if step == 0:
        return
    below = step // 2
    for v in range(VALUES):
        mapped[v], below = below, below + mapped[v]
    for v in range(VALUES):
        mapped[v] = min(int(mapped[v] / step), 255)
    for v in range(VALUES):
        table[v] = mapped[table[v]]


@njit
def compose(operation, parameter, table, is_tabled, counts):
    """Append a look-up operation to the table of each channel; counts are of pixels before the table."""
    for c in range(len(table)):
        if not is_tabled:
            for v in range(VALUES):
                table[c, v] = v
        if operation == AUTOCONTRAST:
            autocontrast(table[c], counts[c])
        elif operation == EQUALIZE:
            equalize(table[c], counts[c])
        elif operation == SOLARIZE:
            for v in range(VALUES):
                table[c, v] = table[c, v] if table[c, v] < parameter else 255 - table[c, v]
        else:
            mask = np.uint8(256 - (1 << (8 - int(parameter))))
            for v in range(VALUES):
                table[c, v] &= mask


@njit
def look_up(image, table, out):
    for c in range(len(image)):
        values, plane, to = table[c], image[c], out[c]
        for i in range(plane.size):
            to[i] = values[plane[i]]


@njit
def shift(image, right, down, height, width, out):
    """Copy the pixel at (x + right, y + down) to (x, y), if it is inside the image."""
    for c in range(len(image)):
        for y in range(max(0, -down), min(height, height - down)):
            line, source = np.uint64(y * width), np.uint64((y + down) * width + right)
            for x in range(max(0, -right), min(width, width - right)):
                out[c, line + np.uint64(x)] = image[c, source + np.uint64(x)]


@njit
def matrix_of(operation, parameter, height, width):
    """Return the affine matrix of a shear, or of a rotation about the centre, rounded as Pillow rounds it."""
    if operation == SHEAR_X:
        return 1.0, parameter, 0.0, 0.0, 1.0, 0.0
    if operation == SHEAR_Y:
        return 1.0, 0.0, 0.0, parameter, 1.0, 0.0
    angle = -math.radians(parameter % 360.0)
    cos, sin = np.rint(math.cos(angle) * 1e15) / 1e15, np.rint(math.sin(angle) * 1e15) / 1e15
    x, y = width / 2, height / 2
    return cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y


@njit
def warp(image, matrix, height, width, out, lines):
    """Sample pixel (x, y) bilinearly at (ax + by + c, dx + ey + f), if inside; integers are pixels' corners.

    Neighbours in a line mostly come from neighbours in a line, so a line is copied in a few runs.
    """
    a, b, c, d, e, f = matrix
    along_x, along_y = (d, e, f) == (0, 1, 0), (a, b, c) == (1, 0, 0)
    right, down = np.uint64(min(1, width - 1)), np.uint64(width if height > 1 else 0)
    fx, fy, place = lines[0], lines[1], lines[2]
    for y in range(height):
        if along_x:
            low, high = -min(y, width - 1, 1), width - 1 - int(y == height - 1)
            locate_along(a, b, c, y + 0.5, low, high, width, 1, 1, y * width + width, fx, place)
        elif along_y:
            locate_along(d, e, f, y + 0.5, 0, height - 2, height, width, 0, width, fx, place)
        else:
            locate(matrix, y + 0.5, height, width, fx, fy, place)
        last = 0
        while last < width:
            first, start = last, place[last]
            while last < width and place[last] == start:
                last += 1
            if start == OUTSIDE:
                continue
            line, source = np.uint64(y * width + first), np.uint64(start + first - width)
            if along_x or along_y:
                blend_two(image, source, right if along_x else down, fx, first, last, out, line)
            else:  # below the last line, the line itself is repeated
                below = down if source + down < image.shape[1] else np.uint64(0)
                blend_four(image, source, right, below, fx, fy, first, last, out, line)


@njit
def locate_along(p, q, r, yin, low, high, limit, step, less, offset, fraction, place):
    """Do as `locate` along one axis; indices are clamped to low..high, which may reach into the next line."""
    for x in range(len(place)):
        s = p * (x + 0.5) + q * yin + r
        s0 = max(min(math.floor(s - 0.5), high), low)
        inner = max(min(s - 0.5 - s0, 1.0), 0.0)
        fraction[x] = 1.0 if s0 < 0 else 0.0 if s0 > limit - 2 else inner
        place[x] = OUTSIDE if (s < 0) | (s >= limit) else s0 * step - x * less + offset


@njit
def locate(matrix, yin, height, width, fx, fy, place):
    """Compute each pixel's source index, minus x (constant within a run) plus width, and its fractions.

    Beyond the border, the border pixel is repeated: the fraction is 0 or 1, and no index is out of range.
    """
    a, b, c, d, e, f = matrix
    for x in range(width):
        sx, sy = a * (x + 0.5) + b * yin + c, d * (x + 0.5) + e * yin + f
        x0, y0 = max(min(math.floor(sx - 0.5), width - 2), 0), max(math.floor(sy - 0.5), 0)
        fx[x], fy[x] = max(min(sx - 0.5 - x0, 1.0), 0.0), max(sy - 0.5 - y0, 0.0)
        is_outside = (sx < 0) | (sx >= width) | (sy < 0) | (sy >= height)
        place[x] = OUTSIDE if is_outside else y0 * width + x0 - x + width


@njit
def blend_two(image, source, step, fraction, first, last, out, line):
    start = np.uint64(first)
    for c in range(len(image)):
        for x in range(last - first):
            i = np.uint64(x)
            p, q = float(image[c, source + i]), float(image[c, source + i + step])
            out[c, line + i] = np.uint8(np.int32(p + (q - p) * fraction[start + i]))


@njit
def blend_four(image, source, right, down, fx, fy, first, last, out, line):
    start = np.uint64(first)
    for c in range(len(image)):
        for x in range(last - first):
            i = np.uint64(x)
            p00, p01 = float(image[c, source + i]), float(image[c, source + i + right])
            p10, p11 = float(image[c, source + i + down]), float(image[c, source + i + down + right])
            v0, v1 = p00 + (p01 - p00) * fx[start + i], p10 + (p11 - p10) * fx[start + i]
            out[c, line + i] = np.uint8(np.int32(v0 + (v1 - v0) * fy[start + i]))


@njit
def run_chain(crop, crop_counts, counts, operations, parameters, width, fill, warped, table, lines):
    """Return the buffer with a chain's result, or NOT_WARPED, and whether its table is still to apply."""
    height = crop.shape[1] // width
    image, known, is_counted = crop, crop_counts, True
    slot, is_tabled = NOT_WARPED, False
    for depth in range(len(operations)):
        operation, parameter = operations[depth], parameters[depth]
        if operation in (AUTOCONTRAST, EQUALIZE, SOLARIZE, POSTERIZE):
            if not is_counted and operation in (AUTOCONTRAST, EQUALIZE):
                count(image, counts)
                known, is_counted = counts, True
            compose(operation, parameter, table, is_tabled, known)
            is_tabled = True
        elif operation >= 0 and parameter != 0:
            source, slot = max(slot, 0), 1 - max(slot, 0)
            if is_tabled:
                look_up(image, table, warped[source])
                image, is_tabled = warped[source], False
            target = warped[slot]
            for c in range(len(target)):
                for i in range(target.shape[1]):
                    target[c, i] = fill[c]
            if operation in (TRANSLATE_X, TRANSLATE_Y):
                along_x = operation == TRANSLATE_X
                right, down = int(parameter) * along_x, int(parameter) * (not along_x)
                shift(image, right, down, height, width, target)
            else:
                warp(image, matrix_of(operation, parameter, height, width), height, width, target, lines)
            image, is_counted = target, False
    return slot, is_tabled


@njit
def add_up(c, crop, warped, slots, tables, is_tabled, own, shares, offset, terms, out):
    """Mix one channel of a view; the crop and all chains without a warp share one table."""
    for row in range(len(terms)):
        for v in range(VALUES):
            terms[row, v] = 0
    is_curved = False
    for chain in range(len(slots)):
        is_own = slots[chain] == NOT_WARPED
        if is_tabled[chain]:
            row = 0 if is_own else chain + 1
            for v in range(VALUES):
                terms[row, v] += shares[chain] * np.float32(tables[chain, c, v])
            is_curved |= is_own
        elif is_own:
            own += shares[chain]
    for v in range(VALUES):
        terms[0, v] += own * np.float32(v) + offset
    for first in range(0, crop.size, BLOCK):
        plane, to = crop[first : first + BLOCK], out[first : first + BLOCK]
        for i in range(to.size):
            to[i] = terms[0, plane[i]] if is_curved else own * np.float32(plane[i]) + offset
        for chain in range(len(slots)):
            if slots[chain] != NOT_WARPED:
                plane = warped[chain, slots[chain], c, first : first + BLOCK]
                share, is_curve = shares[chain], is_tabled[chain]
                for i in range(to.size):
                    to[i] += terms[chain + 1, plane[i]] if is_curve else share * np.float32(plane[i])


@kernel(
    "(uint8[:,:,::1], int64, int64[:,:,::1], float64[:,:,::1], float32[:,::1], float32[::1], float32[::1],"
    " float32[::1], uint8[::1], float32[:,:,::1])"
)
def mix(crops, width, operations, parameters, weights, keep, scale, offset, fill, out):
    """Write scale * mix + offset of each crop, uint8 (n, channels, pixels), to out, float32."""
    chains, channels, pixels = operations.shape[1], crops.shape[1], crops.shape[2]
    buffers, lines = np.empty((chains, 2, channels, pixels), np.uint8), np.empty((3, width))
    tables, terms = np.empty((chains, channels, VALUES), np.uint8), np.empty((chains + 1, VALUES), np.float32)
    counts, slots = np.empty((2, channels, VALUES), np.int32), np.empty(chains, np.int64)
    is_tabled = np.empty(chains, np.bool_)
    for view in range(len(crops)):
        crop = crops[view]
        for operation in operations[view].flat:
            if operation in (AUTOCONTRAST, EQUALIZE):
                count(crop, counts[0])
                break
        for k in range(chains):
            steps, levels = operations[view, k], parameters[view, k]
            slots[k], is_tabled[k] = run_chain(
                crop, counts[0], counts[1], steps, levels, width, fill, buffers[k], tables[k], lines
            )
        for c in range(channels):
            own, shares = keep[view] * scale[c], (np.float32(1) - keep[view]) * scale[c] * weights[view]
            to = out[view, c]
            add_up(c, crop[c], buffers, slots, tables, is_tabled, own, shares, offset[c], terms, to)

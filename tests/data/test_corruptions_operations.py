"""Every corruption against an independent reference: another library, a plain loop, published vectors."""

import colorsys
import io

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from memo_tta.data.corruptions import blur, digital, noise, weather
from memo_tta.data.corruptions.severity import CIFAR, IMAGENET
from memo_tta.seeding import sample_rng

GREY = 102  # 0.4


def rng():
    return sample_rng(0, "operations")


def random_image(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, (*shape, 3)).astype(np.uint8)


def flat(value: int, side: int = 200) -> np.ndarray:
    return np.full((side, side, 3), value, np.uint8)


def assert_truncates(ours: np.ndarray, exact: np.ndarray, slack: float = 1e-4) -> None:
    """Check that our uint8 values are the exact ones, 0..1, truncated; near an integer, either is right."""
    assert ours.dtype == np.uint8
    levels = np.clip(exact, 0, 1) * 255
    assert (ours >= np.floor(levels - slack)).all()
    assert (ours <= np.floor(levels + slack)).all()


def test_gaussian_noise_has_its_deviation_in_each_channel():
    x: np.ndarray = noise.gaussian_noise(flat(128), rng(), 0.08) / 255
    np.testing.assert_allclose(x.std(axis=(0, 1)), 0.08, rtol=0.02)
    np.testing.assert_allclose(x.mean(axis=(0, 1)), (128 - 0.5) / 255, atol=0.002)
    assert abs(np.corrcoef(x.reshape(-1, 3).T)[np.triu_indices(3, 1)]).max() < 0.02


@pytest.mark.parametrize("rate", [500, 60])
def test_shot_noise_has_the_variance_of_photons(rate):
    x = noise.shot_noise(flat(GREY), rng(), rate) / 255
    assert x.var() == pytest.approx(0.4 / rate, rel=0.03)
    assert x.mean() == pytest.approx(0.4, abs=0.003)


def test_impulse_noise_replaces_its_share_half_by_black_half_by_white():
    x = noise.impulse_noise(flat(GREY), rng(), 0.07)
    assert (x == 0).mean() == pytest.approx(0.035, rel=0.05)
    assert (x == 255).mean() == pytest.approx(0.035, rel=0.05)
    assert np.isin(x, (0, GREY, 255)).all()


def test_speckle_noise_grows_with_brightness():
    for value in (51, 102):
        x = noise.speckle_noise(flat(value), rng(), 0.2) / 255
        assert x.std() == pytest.approx(0.2 * value / 255, rel=0.02)
    assert (noise.speckle_noise(flat(0), rng(), 0.2) == 0).all()


@pytest.mark.parametrize("table", [CIFAR, IMAGENET], ids=["cifar", "imagenet"])
def test_defocus_is_a_correlation_with_a_soft_disk(table):
    image = random_image(60, 45)
    for radius, alias_sigma in table["defocus_blur"]:
        reach = max(8, int(radius))
        offsets = np.arange(-reach, reach + 1)
        kernel = (np.hypot(*np.meshgrid(offsets, offsets)) <= radius).astype(float)
        window = 1 if radius <= 8 else 2
        kernel = ndimage.gaussian_filter(kernel / kernel.sum(), alias_sigma, mode="mirror", radius=window)
        planes = [ndimage.correlate(plane / 255, kernel, mode="mirror") for plane in np.moveaxis(image, 2, 0)]
        assert_truncates(blur.defocus_blur(image, rng(), radius, alias_sigma), np.stack(planes, axis=2))


def test_gaussian_blur_weighs_by_distance_and_repeats_the_edge():
    image = np.zeros((41, 41, 3), np.uint8)
    image[20, 20] = 255
    reach = np.arange(-20, 21)
    line = np.where(abs(reach) <= 8, np.exp(-(reach**2) / 8), 0)
    assert_truncates(blur.gaussian_blur(image, rng(), 2), np.outer(line, line)[..., None] / line.sum() ** 2)
    image[20:] = 255
    blurred = blur.gaussian_blur(image, rng(), 2)
    assert (blurred[0] == 0).all()
    assert (blurred[-1] >= 254).all()


def copy_one_by_one(image, dy, dx, delta):
    image = image.copy()
    height, width = image.shape[:2]
    for y in range(height - delta, delta, -1):
        for x in range(width - delta, delta, -1):
            place = (y - delta - 1, x - delta - 1)
            image[y, x] = image[y + dy[place], x + dx[place]]
    return image


@pytest.mark.parametrize("shape", [(32, 32), (17, 40), (40, 9)])
@pytest.mark.parametrize("delta", [1, 2, 4])
def test_glass_copies_pixels_in_the_published_order(shape, delta):
    image = random_image(*shape)
    for seed in range(3):
        region = (2, shape[0] - 2 * delta, shape[1] - 2 * delta)
        dy, dx = np.random.default_rng(seed).integers(-delta, delta, region)
        expected = copy_one_by_one(image, dy, dx, delta)
        assert (expected != image).any()
        np.testing.assert_array_equal(blur.copy_neighbours(image, dy, dx), expected)


def test_glass_blur_draws_below_its_largest_shift():
    image = np.zeros((32, 32, 3), np.uint8)
    image[..., 0], image[..., 1] = np.mgrid[:32, :32]
    moved = blur.glass_blur(image, rng(), 1e-6, 1, 1).astype(int) - image
    assert set(np.unique(moved)) == {-1, 0}
    assert (moved[:2] == 0).all()
    assert (moved[:, :2] == 0).all()
    assert moved[31].any()
    assert moved[:, 31].any()


def test_motion_blur_is_that_of_imagemagick(golden):
    vectors = golden.arrays("motion_blur")
    for case in golden.json("motion_blur")["cases"]:
        ours = blur.imagemagick_motion_blur(
            vectors[case["source"]], case["radius"], case["sigma"], case["angle_deg"]
        )
        np.testing.assert_array_equal(ours, vectors[case["key"]], err_msg=str(case))


def test_motion_blur_keeps_what_is_even():
    assert (blur.imagemagick_motion_blur(flat(255, 20), 9, 2.5, 33) == 255).all()


def zoomed_by_scipy(x: np.ndarray, factor: float) -> np.ndarray:
    kept = [int(np.ceil(size / factor)) for size in x.shape]
    start = [(size - part) // 2 for size, part in zip(x.shape, kept, strict=True)]
    centre = x[start[0] : start[0] + kept[0], start[1] : start[1] + kept[1]]
    large = np.asarray(ndimage.zoom(centre, factor, order=1))
    top, left = ((long - size) // 2 for long, size in zip(large.shape, x.shape, strict=True))
    return large[top : top + x.shape[0], left : left + x.shape[1]]


@pytest.mark.parametrize("shape", [(32, 32), (224, 224), (21, 50)])
def test_zoom_is_that_of_scipy(shape):
    x = np.random.default_rng(0).normal(size=shape)
    for factor in (1, 1.01, 1.25, np.nextafter(1.25, 2), 1.3, 1.75, 2.25, 4.5):
        np.testing.assert_allclose(blur.centre_zoom(x, factor), zoomed_by_scipy(x, factor), atol=1e-12)


@pytest.mark.parametrize(("table", "shape"), [(CIFAR, (32, 32)), (CIFAR, (20, 33)), (IMAGENET, (70, 90))])
def test_zoom_blur_is_the_mean_of_the_zooms_and_of_the_image(table, shape):
    image = random_image(*shape)
    for (factors,) in table["zoom_blur"]:
        layers = [[zoomed_by_scipy(image[..., c] / 255, f) for f in factors] for c in range(3)]
        mean = (image / 255 + np.stack([sum(layer) for layer in layers], 2)) / (len(factors) + 1)
        assert_truncates(blur.zoom_blur(image, rng(), factors), mean)


def test_plasma_is_diamond_square_on_a_torus():
    size, decay, wibble, draws = 16, 1.75, 100.0, rng()
    clouds = np.zeros((size, size))
    step = size
    while step > 1:
        half = step // 2
        diagonal = [(-half, -half), (-half, half), (half, -half), (half, half)]
        straight = [(-half, 0), (half, 0), (0, -half), (0, half)]
        for top, left, near in ((half, half, diagonal), (0, half, straight), (half, 0, straight)):
            for y in range(top, size, step):
                for x in range(left, size, step):
                    mean = sum(clouds[(y + dy) % size, (x + dx) % size] for dy, dx in near) / 4
                    clouds[y, x] = mean + wibble * draws.uniform(-wibble, wibble)
        step, wibble = half, wibble / decay
    expected = (clouds - clouds.min()) / np.ptp(clouds)
    np.testing.assert_allclose(weather.plasma(size, decay, rng()), expected, atol=1e-12)


def test_fog_is_haze_scaled_to_the_largest_value():
    image = random_image(32, 32)
    haze = 1.5 * weather.plasma(32, 1.75, rng())[..., None]
    top = image.max() / 255
    assert_truncates(weather.fog(image, rng(), 1.5, 1.75), (image / 255 + haze) * top / (top + 1.5))


def test_snow_whitens_and_falls_the_same_way_upside_down():
    black, white = flat(0, 32), flat(255, 32)
    fallen = weather.snow(black, rng(), 0.3, 0.3, 1.25, 0.65, 14, 12, 0.8)
    np.testing.assert_array_equal(fallen, fallen[::-1, ::-1])
    assert fallen.min() >= 25  # 0.2 x 0.5 of white, even where no flake is
    assert fallen.max() > 40
    assert (weather.snow(white, rng(), 0.3, 0.3, 1.25, 0.65, 14, 12, 0.8) == 255).all()
    # Without flakes what is left is the whitening.
    green = np.zeros((32, 32, 3), np.uint8)
    green[..., 1] = 51
    whitened = weather.snow(green, rng(), -9, 0.1, 1, 0.6, 8, 3, 0.5)[0, 0]
    grey = 0.587 * 0.2 * 1.5 + 0.5
    np.testing.assert_allclose(whitened / 255, [grey / 2, 0.1 + grey / 2, grey / 2], atol=1 / 255)


def test_mud_and_water_have_their_colours():
    muddy = weather.spatter(flat(255, 64), rng(), 0.65, 0.1, 0.5, 0.68, 0.6, True)
    muddy = muddy.reshape(-1, 3)
    darkest = muddy[muddy.sum(axis=1).argmin()]
    np.testing.assert_allclose(darkest, (63, 42, 20), atol=5)
    assert (muddy == 255).all(axis=1).mean() > 0.3
    wet = weather.spatter(flat(0, 64), rng(), 0.65, 0.3, 1, 0.69, 0.5, False).reshape(-1, 3)
    brightest = wet[wet.sum(axis=1).argmax()]
    np.testing.assert_allclose(brightest, np.array([175, 238, 238]) / 2, atol=1)


def by_colorsys(image: np.ndarray, change) -> np.ndarray:
    pixels = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*p))) for p in image.reshape(-1, 3) / 255]
    return np.reshape(pixels, image.shape)


def colours() -> np.ndarray:
    """Return an image with random colours, greys, black and pure colours."""
    image = random_image(40, 40)
    image[:5] = image[:5, :, :1]
    image[5] = 0
    image[6:9] = image[6:9] // 128 * 255
    return image


@pytest.mark.parametrize("delta", [0.05, 0.1, 0.3, 0.5])
def test_brightness_is_a_shift_of_the_value(delta):
    expected = by_colorsys(colours(), lambda h, s, v: (h, s, min(v + delta, 1)))
    assert_truncates(digital.brightness(colours(), rng(), delta), expected)


@pytest.mark.parametrize(("factor", "shift"), [*CIFAR["saturate"], *IMAGENET["saturate"]])
def test_saturate_scales_the_saturation(factor, shift):
    expected = by_colorsys(colours(), lambda h, s, v: (h, min(s * factor + shift, 1), v))
    assert_truncates(digital.saturate(colours(), rng(), factor, shift), expected)


def test_contrast_shrinks_about_the_mean_of_each_channel():
    image = random_image(32, 20)
    image[..., 2] //= 3
    out = digital.contrast(image, rng(), 0.15).astype(float)
    np.testing.assert_allclose(out.mean(axis=(0, 1)), image.mean(axis=(0, 1)), atol=1)
    np.testing.assert_allclose(out.std(axis=(0, 1)), 0.15 * image.std(axis=(0, 1)), atol=0.3)


def test_elastic_transform_without_any_movement_is_the_image():
    image = random_image(30, 41)
    assert_truncates(digital.elastic_transform(image, rng(), 0, 0, 0), image / 255)


def test_elastic_transform_moves_all_pixels_by_one_affine_map():
    image = np.zeros((40, 60, 3), np.uint8)
    image[..., 0], image[..., 1] = np.mgrid[:40, :60] * 4
    out = digital.elastic_transform(image, rng(), 0, 0, 2)[6:-6, 6:-6, :2] / 4
    y, x = np.mgrid[:40, :60][:, 6:-6, 6:-6]
    places = np.stack([y.ravel(), x.ravel(), np.ones(y.size)], axis=1)
    fit, *_ = np.linalg.lstsq(places, out.reshape(-1, 2), rcond=None)
    np.testing.assert_allclose(places @ fit, out.reshape(-1, 2), atol=0.4)
    assert abs(out - np.stack([y, x], 2)).max() > 0.5


def test_elastic_transform_moves_pixels_by_smooth_fields_of_its_strength():
    image = np.zeros((120, 120, 3), np.uint8)
    image[..., 0], image[..., 1] = np.mgrid[:120, :120] * 2
    out = digital.elastic_transform(image, rng(), 29.28, 2.44, 0)
    moved = (out.astype(float) - image)[10:-10, 10:-10, :2] / 2
    # Uniform noise of deviation 1/sqrt(3), smoothed by a Gaussian: divided by 2 sqrt(pi) sigma.
    expected = 29.28 / np.sqrt(3) / (2 * np.sqrt(np.pi) * 2.44)
    np.testing.assert_allclose(moved.std(axis=(0, 1)), expected, rtol=0.15)


def test_pixelate_is_two_box_resizes():
    image = random_image(32, 47)
    for (scale,) in (*CIFAR["pixelate"], *IMAGENET["pixelate"]):
        coarse = Image.fromarray(image).resize((int(47 * scale), int(32 * scale)), Image.Resampling.BOX)
        expected = np.asarray(coarse.resize((47, 32), Image.Resampling.BOX))
        np.testing.assert_array_equal(digital.pixelate(image, rng(), scale), expected)


def test_jpeg_compression_is_that_of_pillow():
    image = random_image(32, 47)
    for (quality,) in (*CIFAR["jpeg_compression"], *IMAGENET["jpeg_compression"]):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "jpeg", quality=quality, subsampling="4:2:0")
        np.testing.assert_array_equal(
            digital.jpeg_compression(image, rng(), quality), np.asarray(Image.open(file))
        )

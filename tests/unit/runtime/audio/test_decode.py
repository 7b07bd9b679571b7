"""Audio files are decoded, mixed and resampled within limits."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from aiomlc.errors import BadRequestError
from aiomlc.runtime.audio.decode import FORMATS, SAMPLE_RATE, decode_audio
from aiomlc.runtime.audio.limits import AudioLimits
from aiomlc.runtime.audio.sources import load_audio
from tests.audio_files import wav_bytes
from tests.mutations import mutated

LIMITS = AudioLimits(max_seconds=3, max_bytes=1_000_000)


def tone(rate: int, seconds: float = 1.0, hertz: float = 440.0) -> NDArray[np.float32]:
    time = np.arange(int(rate * seconds)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * time)).astype(np.float32)


def test_samples_of_16_khz_are_unchanged() -> None:
    samples = tone(SAMPLE_RATE)

    decoded = decode_audio(wav_bytes(samples), LIMITS, "file")

    assert decoded.dtype == np.float32
    assert np.abs(decoded - samples).max() < 1e-4


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_other_rates_are_resampled(rate: int) -> None:
    decoded = decode_audio(wav_bytes(tone(rate, 2.0), rate), LIMITS, "file")

    expected = tone(SAMPLE_RATE, 2.0)
    assert len(decoded) == len(expected)
    middle = slice(2000, -2000)  # The filter has no samples beyond the ends.
    assert np.abs(decoded[middle] - expected[middle]).max() < 1e-3


def test_channels_are_mixed() -> None:
    left = tone(SAMPLE_RATE)
    stereo = np.stack([left, np.zeros_like(left)], axis=1)

    decoded = decode_audio(wav_bytes(stereo), LIMITS, "file")

    assert np.abs(decoded - left / 2).max() < 1e-4


@pytest.mark.parametrize(
    ("name", "limit"), [("FLAC", 1e-4), ("OGG", 0.05), ("MP3", 0.05), ("AIFF", 1e-4)]
)
def test_formats_are_decoded(name: str, limit: float) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(SAMPLE_RATE), SAMPLE_RATE, format=name)

    decoded = decode_audio(buffer.getvalue(), LIMITS, "file")

    middle = slice(2000, 14_000)
    spectrum = np.abs(np.fft.rfft(decoded[middle]))
    assert np.argmax(spectrum) * SAMPLE_RATE / 12_000 == pytest.approx(440, abs=2)
    assert np.abs(decoded[middle]).max() == pytest.approx(0.5, abs=limit)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be decoded"),
        (b"RIFF....", "cannot be decoded"),
        (b"hello " * 100, "begins with b'hello he'"),
        (wav_bytes(tone(SAMPLE_RATE, 0.0)), "has no samples"),
        (wav_bytes(tone(SAMPLE_RATE, 3.1)), "is longer than 3 s"),
        (wav_bytes(np.zeros((160, 17), np.float32)), "has 17 channels"),
        (bytes(1_000_001), "at most 1000000 bytes"),
    ],
)
def test_bad_files_are_described(data: bytes, message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as info:
        decode_audio(data, LIMITS, "file")

    assert info.value.param == "file"
    assert str(info.value).startswith("file: ")


@pytest.mark.parametrize("name", ["AU", "CAF", "W64", "RF64", "VOC", "SDS", "MAT5", "NIST"])
def test_other_formats_never_reach_libsndfile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(SAMPLE_RATE), SAMPLE_RATE, format=name)
    monkeypatch.delattr(soundfile, "SoundFile")

    with pytest.raises(BadRequestError, match="cannot be decoded: its format is unknown"):
        decode_audio(buffer.getvalue(), LIMITS, "file")


@pytest.mark.parametrize("rate", [SAMPLE_RATE, 44_100])
@pytest.mark.parametrize(
    "values", [(np.nan, 0.0), (np.inf, 0.0), (np.inf, -np.inf), (3e38, 3e38), (-3e38, -3e38)]
)
def test_samples_that_are_not_finite_are_refused(values: tuple[float, float], rate: int) -> None:
    samples = np.zeros((rate, 2), np.float32)
    samples[100:200] = values
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format="WAV", subtype="FLOAT")

    with pytest.raises(BadRequestError, match="no finite numbers"):
        decode_audio(buffer.getvalue(), LIMITS, "file")


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files_are_decoded_or_end_in_typed_errors(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    random_ = random.Random(name)
    stereo = np.stack([tone(22_050, 0.2)] * 2, axis=1)
    subtypes = sorted(soundfile.available_subtypes(name))
    outcomes: list[str] = []
    for _ in range(100):
        buffer = io.BytesIO()
        try:
            soundfile.write(buffer, stereo, 22_050, format=name, subtype=random_.choice(subtypes))
        except soundfile.LibsndfileError:
            continue  # It has one channel only, or no encoder.

        try:
            samples = decode_audio(mutated(buffer.getvalue(), random_), LIMITS, "file")
            assert 0 < len(samples) <= LIMITS.max_seconds * SAMPLE_RATE
            assert np.isfinite(samples).all()
            outcomes.append("decoded")
        except BadRequestError as error:
            outcomes.append(str(error))
    errors = [each for each in outcomes if each != "decoded"]
    assert len(errors) > 5
    assert all(error.startswith("file: the audio ") for error in errors)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "Exception ignored" not in printed.err
    if name != "MP3":  # libmpg123 writes notes on damaged frames.
        assert printed.err == ""


def test_a_truncated_file_has_the_samples_that_are_there() -> None:
    data = wav_bytes(tone(SAMPLE_RATE))

    decoded = decode_audio(data[: len(data) // 2], LIMITS, "file")

    assert 7_000 < len(decoded) < 9_000


def test_decoding_ends_when_nothing_waits_or_the_time_is_over() -> None:
    data = wav_bytes(tone(SAMPLE_RATE))
    late = AudioLimits(decode_seconds=0.0)

    for arguments in ((data, LIMITS, "file", lambda: True), (data, late, "file")):
        with pytest.raises(BadRequestError, match="to decode"):
            decode_audio(*arguments)


async def test_paths_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(tone(SAMPLE_RATE)))

    assert len(await load_audio(path, LIMITS)) == len(await load_audio(str(path), LIMITS)) == 16_000
    with pytest.raises(BadRequestError, match=r"audio: cannot read .*b\.wav: No such file"):
        await load_audio(tmp_path / "b.wav", LIMITS)

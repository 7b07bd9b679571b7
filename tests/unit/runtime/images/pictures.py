"""Images as files, and what a client may do to them. Everything follows from a seed."""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache

from PIL import Image

Picture = Image.Image


def gradient(width: int, height: int, mode: str = "RGB") -> Picture:
    """Return a picture in which every row and column differs."""
    image = Image.new("RGB", (width, height))
    image.putdata(
        [
            (x * 255 // width, y * 255 // height, (x + y) % 256)
            for y in range(height)
            for x in range(width)
        ]
    )
    return image if mode == "RGB" else image.convert(mode)


def encoded(image: Picture, form: str, **options: object) -> bytes:
    """Return an image as a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def animation(form: str) -> bytes:
    """Return three frames, of which the first is red."""
    frames = [Image.new("RGB", (24, 16), color) for color in ("red", "green", "blue")]
    return encoded(frames[0], form, save_all=True, append_images=frames[1:])


@cache
def intact_files() -> dict[str, bytes]:
    """Return a small file of every format in the usual modes."""
    small = gradient(37, 23)
    files = {
        f"{form} {mode}": encoded(small.convert(mode), form)
        for form, modes in {
            "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
            "JPEG": ("L", "RGB", "CMYK"),
            "WEBP": ("RGB", "RGBA"),
            "GIF": ("L", "P"),
            "BMP": ("1", "L", "P", "RGB", "RGBA"),
            "TIFF": ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "F", "LAB", "YCbCr"),
        }.items()
        for mode in modes
        if mode != "I;16" and mode != "LAB"
    }
    files["PNG I;16"] = encoded(Image.new("I;16", (9, 7), 40_000), "PNG")
    files["JPEG progressive"] = encoded(small, "JPEG", progressive=True)
    files["JPEG 1 x 1"] = encoded(gradient(1, 1), "JPEG")
    files["PNG 1 x 1"] = encoded(gradient(1, 1), "PNG")
    files["PNG wide"] = encoded(Image.new("L", (9000, 1)), "PNG")
    files["TIFF LZW"] = encoded(small, "TIFF", compression="tiff_lzw")
    files["TIFF deflate"] = encoded(small, "TIFF", compression="tiff_deflate")
    files["GIF animated"] = animation("GIF")
    files["WEBP animated"] = animation("WEBP")
    files["PNG animated"] = animation("PNG")
    files["TIFF pages"] = animation("TIFF")
    return files


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def png(width: int, height: int, *chunks: bytes, data: bytes = b"") -> bytes:
    """Return a gray PNG file of any declared size."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    body = png_chunk(b"IDAT", zlib.compress(data))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + body + png_chunk(b"IEND", b"")


@cache
def bombs() -> dict[str, bytes]:
    """Return small files that would take much memory."""
    zeros = zlib.compress(bytes(64 << 20), 9)
    jpeg = bytearray(encoded(gradient(16, 16), "JPEG"))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = struct.pack(">HH", 65_500, 65_500)
    gif = bytearray(encoded(gradient(16, 16, "P"), "GIF"))
    gif[6:10] = struct.pack("<HH", 65_535, 65_535)
    gif_frame = bytearray(encoded(gradient(16, 16, "P"), "GIF"))
    start = gif_frame.index(b"\x2c")
    gif_frame[start + 5 : start + 9] = struct.pack("<HH", 65_535, 65_535)
    bmp = bytearray(encoded(gradient(16, 16), "BMP"))
    bmp[18:26] = struct.pack("<ii", 100_000, 100_000)
    webp = bytearray(encoded(gradient(16, 16), "WEBP"))
    webp[26:30] = struct.pack("<HH", 16_383, 16_383)
    return {
        "png": png(50_000, 50_000, data=bytes(1000)),
        "png of 2**31": png(2**31 - 1, 2**31 - 1),
        "png text": png(8, 8, png_chunk(b"zTXt", b"a\0\0" + zeros), data=bytes(72)),
        "png profile": png(8, 8, png_chunk(b"iCCP", b"a\0\0" + zeros), data=bytes(72)),
        "png with much data": png(8, 8, data=bytes(64 << 20)),
        "tall png": png(1, 2**30),
        "jpeg": bytes(jpeg),
        "gif": bytes(gif),
        "gif frame": bytes(gif_frame),
        "bmp": bytes(bmp),
        "webp": bytes(webp),
        "large webp": encoded(Image.new("RGB", (8000, 8000)), "WEBP", method=0),
        "tiff": encoded(Image.new("1", (20_000, 20_000)), "TIFF", compression="group4"),
    }


@cache
def wrong_types() -> dict[str, bytes]:
    """Return files that are no images, or of formats that are not accepted."""
    return {
        "nothing": b"",
        "text": b"This is not an image.",
        "html": b"<!doctype html><html><body>404</body></html>",
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(file) run\n",
        "ppm": b"P6 1 1 255 abc",
        "ico": encoded(gradient(16, 16), "ICO"),
        "tga": encoded(gradient(16, 16), "TGA"),
        "zip": b"PK\3\4" + bytes(100),
        "pdf": b"%PDF-1.7\n" + bytes(100),
    }


def scan_bomb(size: int = 2048, scans: int = 20_000) -> bytes:
    """Return a progressive JPEG file, each of whose many scans goes through all of its blocks."""
    data = encoded(Image.new("L", (size, size), 77), "JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    return data[:-2] + data[start:-2] * scans + data[-2:]

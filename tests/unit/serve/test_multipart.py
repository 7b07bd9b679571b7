"""Forms are read as clients write them, and bad ones end in errors that say what is wrong."""

from __future__ import annotations

import random

import httpx2
import pytest

from aiomlc.serve.http.multipart import FormError, Part, parse_multipart

TYPE = "multipart/form-data; boundary=x"
# Contents that look like a part of a boundary.
PIECES = (b"\r\n", b"\r", b"--", b"\r\n--", b"x", b"--x", b"", b"\0\xff", b"a" * 999)


def field(name: str, value: bytes = b"1", *more: str) -> bytes:
    headers = "\r\n".join((f'Content-Disposition: form-data; name="{name}"', *more))
    return b"--x\r\n%s\r\n\r\n%s\r\n" % (headers.encode(), value)


def random_bytes(random_: random.Random) -> bytes:
    return b"".join(random_.choices(PIECES, k=random_.randrange(6)))


def random_form(random_: random.Random) -> tuple[list[Part], str, bytes]:
    """Return the parts of a form, and the header and body that a client sends for them."""
    parts = [
        Part(random_.choice(("a", "b[]", 'q"', "ä", "a;b")), random_bytes(random_), is_file)
        for is_file in random_.choices((True, False), k=random_.randrange(1, 6))
    ]
    files = [(part.name, ('n".wav' if part.is_file else None, part.content)) for part in parts]
    request = httpx2.Request("POST", "http://app", files=files)
    # As browsers do, the client writes a quote as %22.
    expected = [Part(each.name.replace('"', "%22"), each.content, each.is_file) for each in parts]
    return expected, request.headers["content-type"], request.read()


def test_forms_of_a_client_have_the_parts_that_it_sent() -> None:
    random_ = random.Random(0)
    for _ in range(300):
        parts, content_type, body = random_form(random_)

        assert parse_multipart(content_type, body) == parts
        assert parse_multipart(content_type, b"before\r\n" + body + b"after") == parts


def test_mutated_forms_have_parts_or_end_in_typed_errors() -> None:
    random_ = random.Random(1)
    messages = []
    for _ in range(2000):
        _, content_type, body = random_form(random_)
        data = bytearray(content_type.encode() + b"\n" + body)
        for _ in range(random_.randrange(1, 5)):
            data[random_.randrange(len(data))] = random_.choice(b'\r\n-:;="\\ \0\xe4x')
        header, _, changed = bytes(data[: random_.randrange(len(data)) or None]).partition(b"\n")
        try:
            parts = parse_multipart(header.decode("latin-1"), changed)
            assert sum(len(part.content) for part in parts) <= len(changed)
            [part.text() for part in parts]
        except FormError as error:
            messages.append(str(error))
    assert 0 < len(messages) < 2000
    assert max(map(len, messages)) < 500


@pytest.mark.parametrize(
    ("content_type", "body", "message"),
    [
        ("multipart/form-data", b"", "must have a boundary"),
        ("multipart/form-data; boundary=", b"", "1 to 200 characters of ASCII, got ''"),
        (f"multipart/form-data; boundary={'y' * 201}", b"", "1 to 200 characters"),
        ("multipart/form-data; boundary=\xff", b"", "characters of ASCII"),
        (f"{TYPE}; boundary=y", b"", "name boundary once"),
        *(
            (f"{TYPE}; charset={charset}", field("a") + b"--x--", f"utf-8, got '{charset}'")
            for charset in ("idna", "punycode", "undefined", "utf-16", "no-such", "latin-1")
        ),
        (TYPE, b"", "must end with the line '--x--', got 0 bytes"),
        (TYPE, field("a"), "must end with the line"),
        (TYPE, (field("a") + b"--x--").replace(b"\r\n", b"\n"), "with a line break, got b'"),
        (TYPE, b"".join(field(str(i)) for i in range(65)) + b"--x--", "at most 64 fields"),
        (TYPE, field("a", bytes(2**18 + 1)) + b"--x--", "'a' must have at most 262144 bytes, got"),
        (TYPE, field("a", b"", "b:" + "c" * 9000) + b"--x--", "end within 8192 bytes"),
        (TYPE, field("a", b"", "b") + b"--x--", "a name, a colon and a value, got 'b'"),
        (TYPE, field("") + b"--x--", 'form-data; name="..."'),
        (TYPE, b"--x\r\nA: b\r\n\r\n\r\n--x--", 'form-data; name="..."'),
        (
            TYPE,
            field("a", b"YQ==", "Content-Transfer-Encoding: base64") + b"--x--",
            "sent as it is, got Content-Transfer-Encoding: 'base64'",
        ),
        (TYPE, field("a", b"", "Content-Type: text/plain; charset=cp037") + b"--x--", "utf-8, got"),
    ],
)
def test_what_is_no_form_is_described(content_type: str, body: bytes, message: str) -> None:
    with pytest.raises(FormError) as info:
        parse_multipart(content_type, body)

    assert message in str(info.value)


def test_names_are_read_as_browsers_and_programs_write_them() -> None:
    dispositions = {
        r'form-data; name="a\"b"; filename="x"': 'a"b',
        'form-data; filename="; name=no"; name="file"': "file",
        "Form-Data ;Name=file ; filename=x": "file",
        "form-data; name=file; filename*=utf-8''%e4.wav": "file",
        r'form-data; name="file"; filename="C:\"': "file",
    }
    for disposition, name in dispositions.items():
        body = f"--x\r\nCONTENT-DISPOSITION:{disposition}\r\n\r\n1\r\n--x--".encode()

        assert parse_multipart(TYPE, body) == [Part(name, b"1", True)]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("piece", [r';a="x\"', ';a="', ";a=", ";a", ';="', "; ", r';"\"'])
def test_the_time_for_a_header_is_linear(piece: str) -> None:
    with pytest.raises(FormError):
        parse_multipart(f"multipart/form-data{piece * (2**20 // len(piece))}", b"")


def test_a_text_that_is_not_utf_8_is_described() -> None:
    (part,) = parse_multipart(TYPE, field("prompt", b"ab\xe4") + b"--x--")

    with pytest.raises(FormError, match=r"'prompt' must be UTF-8, got b'\\xe4' at byte 2"):
        part.text()

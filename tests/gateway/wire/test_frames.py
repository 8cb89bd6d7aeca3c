"""Frames in any pieces, whole messages out, nothing with two readings.

Provenance: RFC 6455 section 5; attack log rows W1, S12, D3.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import WebSocketURI

from gateway.wire import frames
from gateway.wire.closing import BROKEN, TOO_BIG
from gateway.wire.frames import CONTROL_BYTES_MAX, Broken, Reader
from gateway.wire.short import short_way

MOST = 300
MASKS = st.booleans()


class Taken:
    """What a reader gave: messages decoded again by somebody else's reader, and control frames."""

    def __init__(self, *, masked: bool, most: int = MOST) -> None:
        self.reader = Reader(
            masked=masked, message_bytes=most, message=self.message, control=self.control
        )
        self.found: list[tuple[int, bytes]] = []
        self.frames: list[bytes] = []
        self.is_open = True
        self.messages = self.sent_bytes = 0
        self.write = self._short
        self._take = short_way(self.reader, self, self._rest)
        self._more = False
        self._shorts: list[tuple[int, bytes]] = []
        self._judge = oracle(masked, most)

    def take(self, data: bytes) -> bool:
        """A read, taken as a leg takes it; whether there may be more in it."""
        self._more = False
        self._take(data)
        return self._more

    def _rest(self, data: bytes) -> None:
        self._more = self.reader.feed(data)

    def _short(self, frame: bytes, /) -> None:
        """Counted before it is written."""
        size = self.sent_bytes - sum(len(payload) for _, payload in self._shorts)
        self.message(frame, size)
        self._shorts.append(self.found[-1])
        assert self.messages == len(self._shorts)

    def message(self, frame: bytes, size: int) -> None:
        self._judge.receive_data(frame)
        (one,) = self._judge.events_received()
        assert isinstance(one, Frame)
        assert (one.fin, len(one.data)) == (True, size)
        self.frames.append(frame)
        self.found.append((int(one.opcode), bytes(one.data)))

    def control(self, opcode: int, payload: bytes) -> None:
        self.found.append((opcode, payload))
        if opcode == Opcode.CLOSE:
            self.reader.stop()


def oracle(masked: bool, most: int = MOST) -> ServerProtocol | ClientProtocol:
    """Their reader for a side; of what is passed on, the other side is the reader."""
    if masked:
        return ServerProtocol(state=State.OPEN, max_size=most)
    return ClientProtocol(WebSocketURI(False, "h", 1, "/", ""), state=State.OPEN, max_size=most)


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The same bytes in pieces."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def head_of(size: int, *, masked: bool) -> bytes:
    """The length of a frame in its shortest form, and a key that changes nothing."""
    if size > CONTROL_BYTES_MAX:
        return wide_head(size, masked=masked)
    return bytes((0x80 * masked | size,)) + bytes(4 * masked)


def wide_head(size: int, *, masked: bool) -> bytes:
    """The same in two bytes, whatever the length is."""
    return bytes((0x80 * masked | 126,)) + size.to_bytes(2, "big") + bytes(4 * masked)


@st.composite
def talk(draw: st.DrawFn) -> list[tuple[Opcode, bytes, list[int], list[bytes]]]:
    """Messages of one side: how each is cut into fragments, and the pings between those."""
    text = st.text(max_size=MOST // 4).map(str.encode)
    said = []
    for _ in range(draw(st.integers(1, 6))):
        opcode = draw(st.sampled_from([Opcode.TEXT, Opcode.BINARY]))
        payload = draw(text if opcode is Opcode.TEXT else st.binary(max_size=MOST))
        cuts = draw(st.lists(st.integers(0, MOST), max_size=3))
        pings = draw(st.lists(st.binary(max_size=CONTROL_BYTES_MAX), max_size=2))
        said.append((opcode, payload, cuts, pings))
    return said


def written(
    said: list[tuple[Opcode, bytes, list[int], list[bytes]]], *, mask: bool
) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The bytes of such a talk, and what a reader should make of it."""
    out, expected = b"", []
    for opcode, payload, cuts, pings in said:
        fragments = pieces(payload, cuts) or [b""]
        for place, fragment in enumerate(fragments):
            kind = Opcode.CONT if place else opcode
            fin = place == len(fragments) - 1
            out += Frame(kind, fragment, fin).serialize(mask=mask)
            if not fin:
                for ping in pings:
                    out += Frame(Opcode.PING, ping).serialize(mask=mask)
                    expected.append((int(Opcode.PING), ping))
        expected.append((int(opcode), payload))
    return out, expected


@given(MASKS, talk(), st.lists(st.integers(0, 2_000), max_size=12))
def test_messages_are_the_same_however_they_are_cut(
    masked: bool, said: list[tuple[Opcode, bytes, list[int], list[bytes]]], cuts: list[int]
) -> None:
    """Fragments are one message, pings between them are told at once, cuts change nothing."""
    out, expected = written(said, mask=masked)
    taken = Taken(masked=masked)
    for piece in pieces(out, cuts):
        taken.take(piece)
    assert taken.found == expected


@st.composite
def nearly(draw: st.DrawFn, masked: bool) -> bytes:
    """A talk of which one byte is another, or whose beginning is missing."""
    raw, _ = written(draw(talk()), mask=masked)
    place, byte = draw(st.integers(0, len(raw) - 1)), draw(st.binary(min_size=1, max_size=1))
    return draw(st.sampled_from([raw[:place] + byte + raw[place + 1 :], raw[place:]]))


@given(st.data(), MASKS, st.lists(st.integers(0, 2_000), max_size=4))
def test_any_bytes_are_read_as_another_reader_reads_them(
    data: st.DataObject, masked: bool, cuts: list[int]
) -> None:
    """Or are refused where that one is more lenient: never the other way round."""
    raw = data.draw(nearly(masked))
    taken = Taken(masked=masked)
    broken = False
    for piece in pieces(raw, cuts):
        try:
            taken.take(piece)
        except (Broken, UnicodeDecodeError):
            broken = True
            break
    theirs = oracle(masked)
    theirs.receive_data(raw)
    expected = assembled(theirs.events_received())
    if taken.found and taken.found[-1][0] == Opcode.CLOSE:
        taken.found.pop()  # whether the close itself is one is not the reader's to say
    elif not broken:
        assert theirs.parser_exc is None
        assert taken.found == expected
    assert taken.found == expected[: len(taken.found)]


def assembled(events: Sequence[object]) -> list[tuple[int, bytes]]:
    """Whole messages and control frames among their events."""
    found: list[tuple[int, bytes]] = []
    parts, kind = b"", Opcode.CONT
    for one in events:
        assert isinstance(one, Frame)
        if one.opcode >= Opcode.CLOSE:
            found.append((int(one.opcode), bytes(one.data)))
            continue
        parts += bytes(one.data)
        kind = one.opcode or kind
        if one.fin:
            found.append((int(kind), parts))
            parts = b""
    return found


HEADS = {
    "reserved bit": (b"\xc1\x00", BROKEN),
    "second reserved bit": (b"\xa2\x00", BROKEN),
    "third reserved bit": (b"\x92\x00", BROKEN),
    "unknown opcode": (b"\x83\x00", BROKEN),
    "unknown control": (b"\x8b\x00", BROKEN),
    "continuation of nothing": (b"\x80\x00", BROKEN),
    "unfinished continuation of nothing": (b"\x00\x00", BROKEN),
    "fragmented ping": (b"\x09\x00", BROKEN),
    "long ping": (b"\x89\x7e\x00\x7e", BROKEN),
    "long close": (b"\x88\x7e\x00\x7e", BROKEN),
    "two bytes for 125": (b"\x82\x7e\x00\x7d", BROKEN),
    "eight bytes for 65535": (b"\x82\x7f" + (65_535).to_bytes(8, "big"), BROKEN),
    "the highest bit": (b"\x82\x7f\x80" + bytes(7), BROKEN),
    "one too many": (b"\x82\x7e" + (MOST + 1).to_bytes(2, "big"), TOO_BIG),
    "terabytes": (b"\x82\x7f" + (1 << 40).to_bytes(8, "big"), TOO_BIG),
}


def from_side(head: bytes, *, masked: bool) -> bytes:
    """A header of a server, or the same of a client."""
    return bytes((head[0], head[1] | 0x80)) + head[2:] if masked else head


@pytest.mark.parametrize("masked", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("name", HEADS)
def test_header_that_is_none_breaks_before_its_payload_comes(name: str, masked: bool) -> None:
    """Nothing is held for it."""
    head, code = HEADS[name]
    taken = Taken(masked=masked)
    with pytest.raises(Broken) as broken:
        taken.take(from_side(head, masked=masked))
    assert broken.value.close_code == code
    assert taken.found == []


@pytest.mark.parametrize("masked", [True, False], ids=["client", "server"])
def test_mask_of_the_wrong_side_breaks(masked: bool) -> None:
    """Section 5.1, also for control frames and empty ones, and as long as one that is right."""
    for first in (0x81, 0x82, 0x89, 0x88):
        for size in (0, 1, 125, 126, 127):
            head = from_side(bytes((first, size)), masked=not masked)
            for rest in (b"", bytes(size), bytes(4 + size)):
                with pytest.raises(Broken) as broken:
                    Taken(masked=masked).take(head + rest)
                assert broken.value.close_code == BROKEN


def test_fragments_together_are_bounded_and_control_frames_do_not_count() -> None:
    """The last one that is too much is refused by its header."""
    taken = Taken(masked=False)
    taken.take(b"\x02\x64" + bytes(100) + b"\x89\x7d" + bytes(125) + b"\x00\x64" + bytes(100))
    with pytest.raises(Broken) as broken:
        taken.take(b"\x80\x65")
    assert broken.value.close_code == TOO_BIG
    again = Taken(masked=False)
    again.take(b"\x02\x64" + bytes(100) + b"\x00\x64" + bytes(100) + b"\x80\x64" + bytes(100))
    again.take(b"\x82\x64" + bytes(100))
    assert again.found == [(Opcode.BINARY, bytes(300)), (Opcode.BINARY, bytes(100))]


def test_message_inside_a_message_breaks() -> None:
    """Section 5.4."""
    taken = Taken(masked=False)
    taken.take(b"\x01\x01a")
    with pytest.raises(Broken):
        taken.take(b"\x81\x01b")


@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xf4\x90\x80\x80"])
@pytest.mark.parametrize("fragmented", [True, False])
def test_text_that_is_no_utf8_is_passed_to_nobody(raw: bytes, fragmented: bool) -> None:
    """A lone byte, a surrogate, half a letter, beyond the last letter."""
    taken = Taken(masked=False)
    head = b"\x01\x01a\x80" if fragmented else b"\x81"
    with pytest.raises(UnicodeDecodeError):
        taken.take(head + bytes((len(raw),)) + raw)
    assert taken.found == []


def test_fragments_of_nothing_are_not_held() -> None:
    """A message of endless empty fragments never grows."""
    taken = Taken(masked=True)
    empty = b"\x80" + bytes(4)
    raw = b"\x01" + empty + (b"\x00" + empty) * 10_000
    while taken.take(raw):
        raw = b""
    assert not taken.reader._whole
    assert not taken.reader._held


def test_fragments_take_the_memory_of_their_bytes() -> None:
    """D3: a message in pieces of two bytes is not held as half a million objects."""
    taken = Taken(masked=True, most=200_000)
    raw = b"\x02\x80" + bytes(4) + (b"\x00\x82keysab") * 100_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        while taken.take(raw):
            raw = b""
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 400_000


def test_whole_message_of_a_server_leaves_as_it_came() -> None:
    """Not one byte is made anew."""
    frame = b"\x81\x7e\x00\x80" + b"x" * 128
    taken = Taken(masked=False)
    taken.take(frame)
    assert taken.frames == [frame]
    assert taken.frames[0] is frame


def test_message_of_a_client_never_leaves_under_the_clients_key() -> None:
    """Section 5.3: what is on the wire towards an upstream is not the caller's to choose."""
    frame = Frame(Opcode.BINARY, b"GET / HTTP/1.1").serialize(mask=True)
    taken = Taken(masked=True)
    for _ in range(2_000):
        taken.take(frame)
    keys = [made[2:6] for made in taken.frames]
    assert len(set(keys)) > 1_990
    assert keys.count(frame[2:6]) <= 2


def test_message_in_single_bytes_is_looked_at_once_more_and_no_oftener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is held is not read again with each byte that comes."""
    looked: list[bytes] = []
    real = frames._shortest

    def counted(length: bytes) -> int:
        looked.append(length)
        return real(length)

    monkeypatch.setattr(frames, "_shortest", counted)
    taken = Taken(masked=True)
    frame = Frame(Opcode.BINARY, bytes(MOST)).serialize(mask=True)
    for at in range(len(frame)):
        taken.take(frame[at : at + 1])
    assert taken.found == [(Opcode.BINARY, bytes(MOST))]
    assert len(looked) == 2


def test_nothing_is_read_after_a_stop_not_even_what_is_here() -> None:
    """What stands behind a close is nobody's, in the same read and in later ones."""
    taken = Taken(masked=False)
    for _ in range(2):
        assert not taken.take(b"\x88\x00\x81\x01a\x81")
    assert taken.found == [(Opcode.CLOSE, b"")]
    assert not taken.reader._held


def test_message_that_nobody_will_get_is_not_held() -> None:
    """The connection may stay for seconds after what broke it."""
    taken = Taken(masked=False)
    taken.take(b"\x02\x64" + bytes(100))
    assert taken.reader._whole
    taken.take(b"\x88\x00")
    assert not taken.reader._whole


@pytest.mark.parametrize("masked", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("size", [0, 5, 125, 126, 300, 65_535])
@pytest.mark.parametrize("letter", ["x", "ệ"])
def test_message_that_comes_alone_never_meets_the_search(
    masked: bool, size: int, letter: str
) -> None:
    """In either direction, in any language; one whose length takes eight bytes does."""
    taken = Taken(masked=masked, most=70_000)
    wide = len(letter.encode())
    text = (letter * (size // wide)).encode() + b"x" * (size % wide)
    taken.take(Frame(Opcode.TEXT, text).serialize(mask=masked))
    assert (taken.messages, taken.found) == (1, [(Opcode.TEXT, text)])
    taken.take(Frame(Opcode.BINARY, bytes(65_536)).serialize(mask=masked))
    assert (taken.messages, len(taken.found)) == (1, 2)


@pytest.mark.parametrize("masked", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("size", [4, 200])
def test_message_for_a_side_that_was_closed_is_nobodys(masked: bool, size: int) -> None:
    taken = Taken(masked=masked)
    taken.is_open = False
    taken.take(Frame(Opcode.TEXT, b"l" * size).serialize(mask=masked))
    assert (taken.found, taken.messages, taken.sent_bytes) == ([], 0, 0)


@pytest.mark.parametrize("masked", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("size", [4, 200])
def test_rest_of_a_message_that_looks_like_one_is_the_rest_of_it(masked: bool, size: int) -> None:
    """A caller chooses what its bytes look like, and where they are cut."""
    like_one = Frame(Opcode.TEXT, b"m" * size).serialize(mask=masked)
    frame = b"\x82" + head_of(len(like_one) + 1, masked=masked) + b"-" + like_one
    taken = Taken(masked=masked)
    for piece in (frame[: -len(like_one)], like_one):
        taken.take(piece)
    assert taken.found == [(Opcode.BINARY, b"-" + like_one)]


@given(MASKS, st.sampled_from([10, 200]), st.integers(-10, 10))
def test_message_that_comes_alone_is_bounded_too(masked: bool, most: int, more: int) -> None:
    """What comes alone is read on a way of its own."""
    taken, size = Taken(masked=masked, most=most), most + more
    raw = Frame(Opcode.BINARY, bytes(size)).serialize(mask=masked)
    if size <= most:
        taken.take(raw)
        assert taken.found == [(int(Opcode.BINARY), bytes(size))]
        return
    with pytest.raises(Broken) as broken:
        taken.take(raw)
    assert (broken.value.close_code, taken.found) == (TOO_BIG, [])


@given(MASKS, st.sampled_from([4, 200]))
def test_message_that_comes_alone_after_a_stop_is_not_read(masked: bool, size: int) -> None:
    taken = Taken(masked=masked)
    taken.reader.stop()
    taken.take(Frame(Opcode.TEXT, b"l" * size).serialize(mask=masked))
    assert taken.found == []


@pytest.mark.parametrize("masked", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("form", [0, 4, 125, 126, 127, 199, 200, 201, 65_535])
@pytest.mark.parametrize("came", [4, 125, 200])
@pytest.mark.parametrize("first", [b"\x81", b"\x82", b"\x01", b"\x02", b"\xc2", b"\x83", b"\x89"])
def test_length_of_two_bytes_has_the_readers_reading(
    masked: bool, form: int, came: int, first: bytes
) -> None:
    """Too short for that form, fewer or more bytes than came, frames that may not be, no text."""
    assert_as_searched(first + wide_head(form, masked=masked) + b"\xff" * came, masked=masked)


@pytest.mark.parametrize("masked", [True, False], ids=["client", "server"])
def test_length_is_read_from_where_its_form_has_it(masked: bool) -> None:
    """Two bytes behind another form may say what came."""
    for mark in range(256):
        data = b"\x82" + bytes((mark,)) + wide_head(200, masked=masked)[1:] + bytes(200)
        assert_as_searched(data, masked=masked)


def assert_as_searched(data: bytes, *, masked: bool) -> None:
    """That a read which may be one whole message is read as the search would."""
    alone, searched = Taken(masked=masked), Taken(masked=masked)

    def heard(taken: Taken, take: Callable[[bytes], object]) -> object:
        try:
            take(data)
        except Broken as broken:
            return broken.close_code
        except UnicodeDecodeError:
            return "no text"
        return taken.found, bytes(taken.reader._held)

    assert heard(alone, alone.take) == heard(searched, searched.reader.feed)

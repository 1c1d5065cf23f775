"""Owns: text from a trace on a terminal: what would steer it, turn its lines around or begin new ones is shown as text.

Must not know: where it is shown.
"""

import re

# Control characters, marks that change the direction of text, and what separates lines or paragraphs.
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def shown(text: str) -> str:
    """The text with every character that is not itself shown written as Python does.

    >>> shown("evil\\x1b[2Jtag\\n")
    'evil\\\\x1b[2Jtag\\\\n'
    """
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)

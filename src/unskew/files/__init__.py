"""Files and folders: written whole or not at all, never over what is not ours, and read under guard."""

from unskew.files.reading import FREE as FREE
from unskew.files.reading import PACKED as PACKED
from unskew.files.reading import WRITERS as WRITERS
from unskew.files.reading import PathLike as PathLike
from unskew.files.reading import digest_of as digest_of
from unskew.files.reading import read_json as read_json
from unskew.files.reading import tensors_at as tensors_at
from unskew.files.reading import unpacked as unpacked
from unskew.files.reading import whole_lines as whole_lines
from unskew.files.writing import CACHED as CACHED
from unskew.files.writing import Ours as Ours
from unskew.files.writing import beside as beside
from unskew.files.writing import complete_file as complete_file
from unskew.files.writing import complete_folder as complete_folder
from unskew.files.writing import is_free as is_free
from unskew.files.writing import locked as locked
from unskew.files.writing import parts as parts
from unskew.files.writing import publish as publish
from unskew.files.writing import refuse_existing as refuse_existing
from unskew.files.writing import remove as remove
from unskew.files.writing import restore as restore
from unskew.files.writing import scratch_folder as scratch_folder
from unskew.files.writing import taken as taken
from unskew.files.writing import told_of_disks as told_of_disks
from unskew.files.writing import write_json as write_json
from unskew.files.writing import write_text as write_text

# The kernel: IPython on two pipes. Cells come on stdin, one JSON object a line. What they print goes to stdout as it is,
# and the cell's mark after it; then one line of JSON to where stderr was says how the cell left things. An empty line
# there says that it can begin, anything else why it ends.
import sys

# Until it can begin, nothing of the current folder is taken for a module: a workspace may have a queue.py.
sys.path[:] = filter(None, sys.path)

import base64, builtins, functools, json, os, queue, shutil, signal, tempfile, threading, traceback

MOST_IMAGES, MOST_IMAGE_BYTES = 8, 4 << 20


def pass_over(*_):
    pass


# As long as there is no cell that could be interrupted.
signal.signal(signal.SIGINT, pass_over)

# Nothing that a cell starts inherits these.
requests = os.fdopen(os.dup(0), encoding="utf-8")
output, replies = os.dup(1), os.fdopen(os.dup(2), "w", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(1, 2)
sys.stdout.reconfigure(encoding="utf-8", errors="replace")
sys.stderr.reconfigure(encoding="utf-8", errors="replace")


def fail(text):
    replies.write(text)
    replies.flush()
    os._exit(1)


try:
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.profiledir import ProfileDir
    from traitlets.config import Config
except ImportError as error:
    fail(f"{sys.executable} has no IPython ({error})")


class Shown:
    def __init__(self):
        self.images, self.left_out, self.bytes = [], 0, 0

    def show(self, data):
        for kind in "image/png", "image/jpeg":
            if kind in data:
                self.add(kind, data[kind])
        if "text/plain" in data:
            print(data["text/plain"])

    def add(self, kind, image):
        if isinstance(image, bytes):
            image = base64.b64encode(image).decode()
        url = f"data:{kind};base64," + image.replace("\n", "")
        self.bytes += len(url)
        if len(self.images) < MOST_IMAGES and self.bytes <= MOST_IMAGE_BYTES:
            self.images.append(url)
        else:
            self.left_out += 1


class Results(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        shown.show(format_dict)


class Displays(DisplayPublisher):
    def publish(self, data, *args, **kwargs):
        shown.show(data)

    def clear_output(self, wait=False):
        pass


class Shell(InteractiveShell):
    def ask_exit(self):
        fail("a cell requested it")

    def enable_gui(self, gui=None):
        pass

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        try:
            self.show_own_frames(exc_tuple, *args, **kwargs)
        except Exception:
            # An exception may be one in name only. What is raised from here would be lost, and the cell a success.
            super().showtraceback(exc_tuple, *args, **kwargs)

    def show_own_frames(self, exc_tuple=None, *args, **kwargs):
        kind, error, trace = exc_tuple or sys.exc_info()
        if error is None:
            return super().showtraceback(exc_tuple, *args, **kwargs)
        for other in chain(error):
            other.__traceback__ = without_ours(other.__traceback__)
        trace = without_ours(trace)
        begin = trace
        while begin is not None and begin.tb_frame.f_globals is not self.user_global_ns:
            begin = begin.tb_next
        if begin is not None:
            # Nothing of it is IPython's, which leaves out the first frame otherwise.
            super().showtraceback((kind, error, begin), *args, **{**kwargs, "tb_offset": 0})
        elif kind is KeyboardInterrupt:
            # It came while an event loop waited for what the cell awaits.
            print(kind.__name__)
        else:
            super().showtraceback((kind, error, trace), *args, **kwargs)


def chain(error):
    """The exceptions that are shown with this one."""
    found, seen = [], {id(error)}
    while True:
        error = error.__context__ if error.__cause__ is None else error.__cause__
        if not isinstance(error, BaseException) or id(error) in seen:
            return found
        found.append(error)
        seen.add(id(error))


def without_ours(trace):
    """A traceback without the frames of this file."""
    first = last = None
    while trace is not None:
        if trace.tb_frame.f_globals is not globals():
            if last is None:
                first = trace
            elif last.tb_next is not trace:
                last.tb_next = trace
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None
    return first


def no_input(*args, **kwargs):
    raise EOFError("no input is available to a cell")


def listen():
    for line in requests:
        cells.put(json.loads(line))
    # Whoever asks is gone, and so is everything here.
    os.killpg(0, signal.SIGKILL)


def execute(cell):
    global is_prepared
    lent = cell["environment"]
    before = {name: os.environ.get(name) for name in lent}
    try:
        if cell["folder"]:
            os.chdir(cell["folder"])
    except OSError as error:
        print(f"It stays in its folder: {error}")
    try:
        try:
            # Not a function of ours, which would be a frame of the traceback; and not the default itself, in whose place
            # asyncio puts a handler that a task may pass over.
            signal.signal(signal.SIGINT, functools.partial(signal.default_int_handler))
            os.environ.update(lent)
            if not is_prepared:
                is_prepared = shell.run_cell(cell["init"]).success
            if is_prepared:
                # Every cell is the first one: a traceback that names another cell each time would hide that an agent repeats
                # itself.
                shell.run_cell(cell["code"], store_history=False)
            else:
                print("The cell was not run: the init code of the kernel failed.")
        finally:
            signal.signal(signal.SIGINT, pass_over)
    except BaseException as error:
        signal.signal(signal.SIGINT, pass_over)
        print(*traceback.format_exception_only(type(error), error), sep="", end="")
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def end(mark):
    for stream in sys.stdout, sys.stderr:
        try:
            stream.flush()
        except Exception:
            pass
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    os.write(output, mark.encode())
    told = dict(mark=mark, folder=folder, python=sys.executable, images=shown.images, left_out=shown.left_out)
    replies.write(json.dumps(told) + "\n")
    replies.flush()


is_prepared, owner, cells = False, os.getpid(), queue.Queue()
threading.Thread(target=listen, daemon=True).start()
os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
builtins.input = no_input
config = Config(HistoryManager={"enabled": False})
# IPython 8.5 to 9.8 write to their profile's folder as soon as they start, and to the current folder where the profile has
# none. What stores something later, like %store, makes the folder again.
profile = tempfile.mkdtemp(prefix="glovebox-ipython-")
parts = dict(displayhook_class=Results, display_pub_class=Displays, ipython_dir="", profile_dir=ProfileDir(location=profile))
shell = Shell.instance(config=config, colors="NoColor", autoawait=True, **parts)
shutil.rmtree(profile, ignore_errors=True)
sys.path.insert(0, "")
replies.write("\n")
replies.flush()
while True:
    cell = cells.get()
    shown = Shown()
    execute(cell)
    if os.getpid() != owner:
        os._exit(0)
    end(cell["mark"])

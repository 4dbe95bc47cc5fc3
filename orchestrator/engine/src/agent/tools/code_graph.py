# Finds code by what it is: classes, functions, and what contains, imports, calls and inherits what. Python 3.8, standard
# library only. Reads files below the working directory, writes none. argv: a tool's name, and its arguments as JSON.
import ast, json, os, re, sys

MAX_FILES, MAX_FILE_BYTES, MAX_OUTPUT_LINES, MAX_HITS, MAX_SNIPPET, MAX_DEPTH = 20000, 1 << 20, 400, 20, 80, 20
SKIPPED = {"node_modules", "__pycache__", "site-packages", "venv"}
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
lines_left = MAX_OUTPUT_LINES


def say(line=""):
    global lines_left
    lines_left -= 1
    if lines_left == 0:
        print("[More is left out: ask for less.]")
    if lines_left > 0:
        print(line[:400])


def read(path):
    try:
        if os.path.isfile(path) and os.path.getsize(path) <= MAX_FILE_BYTES:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
    except OSError:
        pass
    return None


def walk():
    paths = []
    for folder, folders, names in os.walk("."):
        folders[:] = sorted(name for name in folders if name[0] != "." and name not in SKIPPED)
        paths += [os.path.normpath(os.path.join(folder, name)) for name in sorted(names) if name[0] != "."]
        if len(paths) > MAX_FILES:
            say(f"[Only the first {MAX_FILES} files are looked at.]")
            break
    return paths[:MAX_FILES]


def matcher(pattern):
    if pattern.startswith(os.getcwd() + "/"):
        pattern = pattern[len(os.getcwd()) + 1:]
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern[2:] if pattern.startswith("./") else pattern)
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    regex = re.compile("".join(signs.get(part) or re.escape(part) for part in parts) + "(?:/.*)?$")
    return regex.match


class Entity:
    def __init__(self, path, name, kind, node=None, parent=None):
        self.path, self.name, self.kind, self.node, self.parent = path, name, kind, node, parent
        self.id = f"{path}:{name}" if name else path
        self.children, self.start, self.end = {}, 1, 0
        if name:
            self.start = min([node.lineno] + [decorator.lineno for decorator in node.decorator_list])
            self.end = node.end_lineno
            parent.children[node.name] = self


class Code:
    """The Python files and what is defined in them; only one of them, or those that hold one of `words`."""

    def __init__(self, words=None, only=None):
        self.paths = walk() if only is None else [only]
        self.files, self.entities, self.by_node, self.unread = {}, {}, {}, []
        for path in self.paths:
            text = read(path) if path.endswith(".py") else None
            if text is not None and (words is None or any(word in text.lower() for word in words)):
                self.parse(path, text)

    def parse(self, path, text):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.unread.append(path)
            return
        file = Entity(path, "", "file", tree)
        file.lines = text.splitlines()
        file.end = len(file.lines)
        self.files[path] = self.entities[path] = self.by_node[tree] = file
        stack = [(tree, file)]
        while stack:
            node, within = stack.pop()
            children = []
            # Definitions are statements: expressions are not looked into.
            for field in ("body", "handlers", "cases", "orelse", "finalbody"):
                for child in getattr(node, field, None) or []:
                    inner = within
                    if isinstance(child, DEFINITIONS):
                        kind = "class" if isinstance(child, ast.ClassDef) else "function"
                        name = f"{within.name}.{child.name}" if within.name else child.name
                        inner = Entity(path, name, kind, child, within)
                        self.entities[inner.id] = self.by_node[child] = inner
                    children.append((child, inner))
            stack += reversed(children)

    def at(self, path, line):
        """The innermost entity around a line."""
        found = self.files[path]
        for entity in self.entities.values():
            if entity.path == path and entity.name and entity.start <= line <= entity.end and entity.start >= found.start:
                found = entity
        return found


def show(lines, start, end, most=MAX_SNIPPET):
    for number in range(start, min(end, start + most - 1) + 1):
        say(f"{number:6}\t{lines[number - 1]}")
    if end >= start + most:
        say(f"        [{end - start - most + 1} more lines: get_entity_contents shows all]")


def search_code_snippets(search_terms=None, line_nums=None, file_path_or_pattern="**/*.py"):
    fits = matcher(file_path_or_pattern)
    if line_nums:
        path = os.path.normpath(os.path.relpath(file_path_or_pattern))
        lines = (read(path) or "").splitlines()
        if not lines:
            return say(f"There is no file {path} that can be read: with line_nums it must be one file.")
        code = Code(only=path)
        for line in line_nums[:MAX_HITS]:
            entity = code.at(path, line) if path in code.files else None
            start, end = max(1, line - 10), min(len(lines), line + 10)
            if entity and entity.name and entity.end - entity.start < MAX_SNIPPET:
                start, end = entity.start, entity.end
            say(f"## Line {line} of {entity.id if entity else path}")
            show(lines, start, end)
        return None
    terms = search_terms or []
    code = Code({word.lower() for term in terms for word in (term, last_name(term))})
    for term in terms:
        say(f"## {term}")
        named = [entity for entity in code.entities.values() if fits(entity.path) and entity.name
                 and (term in (entity.id, entity.name) or entity.name.endswith("." + term))]
        for entity in named[:MAX_HITS]:
            say(f"{entity.kind} {entity.id}, lines {entity.start} to {entity.end}")
            show(code.files[entity.path].lines, entity.start, entity.end)
        hits, places = 0, []
        for path in filter(fits, code.paths):
            file = code.files.get(path)
            text = None if path.endswith(".py") and not file else read(path)
            if not text or term.lower() not in text.lower():
                continue
            shown = [entity for entity in named if entity.path == path]
            for number, line in enumerate(text.splitlines(), 1):
                if term.lower() in line.lower() and not any(e.start <= number <= e.end for e in shown):
                    hits += 1
                    if hits <= MAX_HITS:
                        places.append((path, number, line))
        for path, number, line in places:
            where = code.at(path, number).id if path in code.files else path
            say(f"{where}, line {number}: {line.strip()}")
        if hits > MAX_HITS:
            say(f"[{hits - MAX_HITS} more lines hold it: narrow it with file_path_or_pattern]")
        if not named and not hits:
            say("Nothing was found.")
    if not search_terms:
        say("Give search_terms or line_nums.")


def last_name(name):
    return re.split(r"[.:/]", name)[-1]


def entity_of(code, name):
    path, colon, inner = name.partition(":")
    path = os.path.normpath(os.path.relpath(path.strip() or ".")) if path.strip() != "/" else "."
    return code.entities.get(f"{path}:{inner.strip()}" if colon else path), path


def suggest(code, name):
    near = [entity.id for entity in code.entities.values() if last_name(entity.name) == last_name(name)]
    near += [path for path in code.paths if os.path.basename(path) == os.path.basename(name)]
    say(f"There is no {name}." + (f" Perhaps: {', '.join(near[:10])}" if near else ""))


def get_entity_contents(entity_names):
    code = Code({last_name(name.strip()).lower() for name in entity_names})
    for name in entity_names:
        entity, path = entity_of(code, name)
        if entity:
            say(f"## {entity.kind} {entity.id}, lines {entity.start} to {entity.end}")
            show(code.files[entity.path].lines, entity.start, entity.end, MAX_OUTPUT_LINES)
        elif ":" not in name and read(path) is not None:
            lines = read(path).splitlines()
            say(f"## file {path}, lines 1 to {len(lines)}")
            show(lines, 1, len(lines), MAX_OUTPUT_LINES)
        else:
            suggest(code, name)


class Graph:
    """What leads to what: by target of each entity, and by source."""

    def __init__(self, code):
        self.code, self.out, self.into, self.kinds = code, {}, {}, {}
        for path in code.paths:
            self.kinds.setdefault(path, "file")
            while path not in ("", "."):
                folder = os.path.dirname(path) or "."
                self.kinds[folder] = "directory"
                self.add(folder, "contains", path)
                path = folder if folder != "." else ""
        self.modules = {}
        for path in sorted(code.files, key=lambda path: (path.count("/"), path)):
            steps = path[:-3].split("/")
            steps = steps[:-1] if steps[-1] == "__init__" else steps
            for first in range(len(steps)):
                self.modules.setdefault(".".join(steps[first:]), code.files[path])
        for entity in code.entities.values():
            self.kinds[entity.id] = entity.kind
            if entity.parent:
                self.add(entity.parent.id, "contains", entity.id)
        nodes = {path: list(self.nodes(file)) for path, file in code.files.items()}
        self.imports = {path: self.imported(code.files[path], nodes[path]) for path in nodes}
        for entity in code.entities.values():
            for base in getattr(entity.node, "bases", []):
                self.link(entity, "inherits", self.resolve(entity.parent, base))
        for scope, call in (pair for path in nodes for pair in nodes[path]):
            if isinstance(call, ast.Call):
                # What a class does when it is made is the class's own.
                caller = scope.parent if scope.name.endswith(".__init__") else scope
                self.link(caller, "invokes", self.resolve(scope, call.func))

    def nodes(self, file):
        """Calls and imports in order, each with the entity that it is in."""
        stack = [(file.node, file)]
        while stack:
            node, within = stack.pop()
            if isinstance(node, (ast.Call, ast.Import, ast.ImportFrom)):
                yield within, node
            children = []
            for field in node._fields:
                value = getattr(node, field, None)
                for child in value if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST) and child._fields:
                        children.append((child, self.code.by_node.get(child, within)))
            stack += reversed(children)

    def add(self, source, kind, target):
        if source != target and (kind, target) not in self.out.setdefault(source, []):
            self.out[source].append((kind, target))
            self.into.setdefault(target, []).append((kind, source))

    def link(self, entity, kind, target):
        if target:
            self.add(entity.id, kind, target.id)

    def imported(self, file, nodes):
        names = {}
        for _, node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    module = self.modules.get(alias.name)
                    if module:
                        names[alias.asname or alias.name] = module
            elif isinstance(node, ast.ImportFrom):
                package = file.path.split("/")[:-node.level] if node.level else []
                base = ".".join(package + ([node.module] if node.module else []))
                module = self.modules.get(base)
                for alias in node.names:
                    inner = module.children.get(alias.name) if module else None
                    found = inner or self.modules.get(f"{base}.{alias.name}" if base else alias.name) or module
                    if found:
                        names[alias.asname or alias.name] = found
        for target in names.values():
            self.link(file, "imports", target)
        return names

    def resolve(self, scope, node):
        """The entity that a name or `a.b` stands for, as far as names say."""
        if isinstance(node, ast.Name):
            within = scope
            while within:
                # What a class defines is not in the scope of its methods.
                if within is scope or within.kind != "class":
                    if node.id in within.children:
                        return within.children[node.id]
                within = within.parent
            return self.imports[scope.path].get(node.id)
        if isinstance(node, ast.Attribute):
            value, within = node.value, scope
            while within and within.kind != "class":
                within = within.parent
            if isinstance(value, ast.Name) and value.id in ("self", "cls"):
                return self.member(within, node.attr)
            if isinstance(value, ast.Call) and getattr(value.func, "id", None) == "super":
                return self.inherited(within, node.attr)
            # `import a.b` is known by its whole name.
            return self.member(self.imports[scope.path].get(dotted(value)) or self.resolve(scope, value), node.attr)
        return None

    def member(self, owner, name, depth=0):
        if owner and name in owner.children:
            return owner.children[name]
        return self.inherited(owner, name, depth)

    def inherited(self, owner, name, depth=0):
        for base in getattr(owner.node, "bases", []) if owner and depth < 10 else []:
            found = self.member(self.resolve(owner.parent, base), name, depth + 1)
            if found:
                return found
        return None


def dotted(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id] + parts[::-1]) if isinstance(node, ast.Name) else None


def explore_tree_structure(start_entities, direction="downstream", traversal_depth=2, entity_type_filter=None,
                           dependency_type_filter=None):
    code = Code()
    graph = Graph(code)
    depth = MAX_DEPTH if traversal_depth < 0 else min(traversal_depth, MAX_DEPTH)
    ways = [(graph.out, "->")] * (direction != "upstream") + [(graph.into, "<-")] * (direction != "downstream")
    for name in start_entities:
        entity, path = entity_of(code, name)
        start = entity.id if entity else path if ":" not in name and path in graph.kinds else None
        if start is None:
            suggest(code, name)
            continue
        for edges, arrow in ways:
            say(f"{start} ({graph.kinds[start]})")
            seen, stack = {start}, [(start, 1, iter(edges.get(start, [])))]
            while stack and lines_left > 0:
                at, level, rest = stack[-1]
                for kind, other in rest:
                    if dependency_type_filter and kind not in dependency_type_filter:
                        continue
                    if entity_type_filter and graph.kinds[other] not in entity_type_filter:
                        continue
                    say(f"{'  ' * level}{arrow} {kind} {other} ({graph.kinds[other]})" + (" ..." if other in seen else ""))
                    if other not in seen and level < depth:
                        seen.add(other)
                        stack.append((other, level + 1, iter(edges.get(other, []))))
                        break
                else:
                    stack.pop()
    if code.unread:
        say(f"[Not Python that can be read: {', '.join(code.unread[:10])}]")


tools = {tool.__name__: tool for tool in (search_code_snippets, get_entity_contents, explore_tree_structure)}
tools[sys.argv[1]](**json.loads(sys.argv[2]))

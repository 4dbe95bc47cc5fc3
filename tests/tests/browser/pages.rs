//! The pages that the tests open. Unknown names return an error page.

pub(super) fn html(page: &str) -> String {
    match page {
        "form" => FORM.to_owned(),
        "long" => {
            format!("<h1>Top</h1>{}<button>Bottom</button>", "<p style='height:300px'>row</p>".repeat(20))
        }
        "tabs" => "<a href='second' target='_blank'>Open</a><a href='second'>Go</a>".to_owned(),
        "second" => "<title>Second</title><h2>The second page</h2>".to_owned(),
        "dialogs" => {
            "<button onclick=\"alert('Be\\nwarned'); this.textContent = confirm('Sure?')\">Ask</button>\
                      <script>onbeforeunload = (event) => { event.preventDefault(); }</script>"
                .to_owned()
        }
        "busy" => "<button onclick='for (;;);'>Spin</button>".to_owned(),
        "loaded-busy" => "<h1>Soon</h1><script>setTimeout(() => { for (;;); }, 0)</script>".to_owned(),
        "download" => "<a href='archive'>Fetch</a>".to_owned(),
        "upload" => "<input type=file onchange='files[0].text().then((text) => { \
                     document.title = files[0].name + \" \" + text })'>"
            .to_owned(),
        "drag" => DRAG.to_owned(),
        // A press never ends unless its script is interrupted.
        "sticky" => "<button id=a>Piece</button><button>Place</button><script>\
                     a.onmousedown = () => { document.title = 'pressed'; fetch('arrived'); for (;;); };\
                     onmouseup = () => { document.title = 'released'; }</script>"
            .to_owned(),
        "frames" => "<iframe srcdoc='<button onclick=\"this.textContent = 7\">Inside</button>'></iframe>\
                     <div id=host></div><script>\
                     host.attachShadow({mode: 'open'}).innerHTML = '<button>Shadowed</button>'</script>"
            .to_owned(),
        "liar" => "<button onclick='document.title = 1'>True</button><script>\
                   Array.prototype.join = String.prototype.replace = WeakMap.prototype.get = () => 'lies';\
                   Element.prototype.checkVisibility = () => { throw 1 };\
                   globalThis.glovebox = {observe: () => 'lies'};</script>"
            .to_owned(),
        "hidden" => {
            "<p style='display:none'>one</p><p style='visibility:hidden'>two</p><p aria-hidden=true>three</p>\
                     <p hidden>four</p><script>five</script><input type=hidden value=six><p>seen</p>\
                     <input type=password value=seven>"
                .to_owned()
        }
        "many-nodes" => format!("<h1>Many</h1>{}", "<div><button>y</button></div>".repeat(50_000)),
        "deep" => {
            // Created by a script, because the HTML parser limits the depth.
            "<h1>Deep</h1><script>let at = document.body; for (let i = 0; i < 1000; i++) { \
             at = at.appendChild(document.createElement('div')) } at.textContent = 'bottom'</script>"
                .to_owned()
        }
        "long-title" => "<h1>Titled</h1><script>document.title = 'x'.repeat(5e6)</script>".to_owned(),
        "long-text" => long_text(100_000),
        "longest-text" => long_text(10_000_000),
        "long-names" => {
            "<p>names</p><script>for (let i = 0; i < 300; i++) { const b = document.createElement('button'); \
                         b.setAttribute('aria-label', 'n'.repeat(1e5)); document.body.append(b) }</script>"
                .to_owned()
        }
        "many-dialogs" => {
            "<h1>Dialogs</h1><script>for (let i = 0; i < 200; i++) alert('d'.repeat(1e5))</script>".to_owned()
        }
        "many-tabs" => {
            "<button onclick='for (let i = 0; i < 50; i++) open(\"second\")'>More</button>".to_owned()
        }
        _ => "<h1>There is no such page</h1>".to_owned(),
    }
}

fn long_text(words: u32) -> String {
    format!("<h1>Long</h1><p id=p></p><script>p.textContent = 'word '.repeat({words})</script>")
}

const FORM: &str = "<title>A form</title><h1>Sign up</h1>
<form onsubmit=\"event.preventDefault(); result.textContent = [nick.value, color.value, agree.checked, day.value].join('|')\">
<label>Nick <input id=nick value=old placeholder='your name'></label>
<label for=color>Colour</label><select id=color><option value=r>Red</option><option value=b>Blue</option></select>
<label><input type=checkbox id=agree> Agree</label>
<input type=date id=day aria-label=Day>
<div contenteditable aria-label=Story>once</div>
<button disabled>Never</button>
<button>Send</button></form>
<p id=result></p>
<span onclick=\"this.textContent = 'poked'; fetch('arrived')\" ondblclick=\"this.textContent = 'twice'\" oncontextmenu=\"this.textContent = 'right'\"
  onmouseover=\"document.title = 'over'\">Poke</span>
<input aria-label=Keys onkeydown=\"log.textContent += event.key + (event.ctrlKey ? '!' : '') + ' '\"><p id=log></p>";

const DRAG: &str = "<div id=a draggable=true role=button aria-label=Piece style='width:50px;height:50px;background:red'></div>
<div id=b role=button aria-label=Place style='margin-top:100px;width:90px;height:90px;background:blue'></div><script>
a.ondragstart = (event) => event.dataTransfer.setData('text/plain', 'piece');
b.ondragover = (event) => event.preventDefault();
b.ondrop = (event) => { event.preventDefault(); document.title = 'dropped ' + event.dataTransfer.getData('text/plain'); };
</script>";

/* The page's style and its script. */
#include "train/report.h"

const char *const report_style[] = {
    ":root{color-scheme:light dark;--bg:#f8fafc;--card:#fff;--line:#e2e8f0;--text:#0f172a;--soft:"
    "#475569;--faint:#94a3b8;--accent:#2563eb;--good:#059669;--warn:#b45309;--c0:#2563eb;--c1:"
    "#d97706;--c2:#059669;--c3:#7c3aed;--c4:#dc2626;--c5:#0891b2;--c6:#db2777;--c7:#64748b}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#0b1120;--card:#111a2e;--line:#1f2a44;--text:"
    "#e6edf7;--soft:#a3b1c9;--faint:#64748b;--accent:#60a5fa;--good:#34d399;--warn:#fbbf24;--c0:"
    "#60a5fa;--c1:#fbbf24;--c2:#34d399;--c3:#a78bfa;--c4:#f87171;--c5:#22d3ee;--c6:#f472b6;--c7:"
    "#94a3b8}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 "
    "system-ui,-apple-system,'Segoe UI',sans-serif}\n"
    "main{max-width:1120px;margin:0 auto;padding:32px 20px 64px}h1{font-size:28px;margin:0;"
    "letter-spacing:-.02em;overflow-wrap:anywhere}h2{font-size:17px;margin:40px 0 12px;"
    "letter-spacing:-.01em}p{margin:6px 0}\n"
    "header{display:flex;gap:14px;align-items:center;flex-wrap:wrap}.chip{font-size:13px;"
    "font-weight:600;padding:3px 11px;border-radius:99px;color:var(--good);border:1px solid}.chip."
    "stopped{color:var(--warn)}\n"
    ".head{display:grid;grid-template-columns:max-content 1fr;gap:2px 18px;margin:14px 0 24px;"
    "color:var(--soft)}.head dt{color:var(--faint)}.head dd{margin:0;overflow-wrap:anywhere}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}.card,"
    ".panel{background:var(--card);border:1px solid var(--line);border-radius:12px}.card{padding:"
    "12px 16px}.card span{display:block;color:var(--soft);font-size:13px}.card b{font-size:23px;"
    "font-weight:650;letter-spacing:-.02em;font-variant-numeric:tabular-nums}.card small{display:"
    "block;color:var(--faint);font-size:13px}\n"
    ".panel{padding:14px 16px;overflow-x:auto}.two{display:grid;grid-template-columns:repeat("
    "auto-fit,minmax(min(440px,100%),1fr));gap:12px;margin-top:12px}\n",
    "svg{display:block;width:100%;height:auto;touch-action:pan-y}svg path{fill:none;"
    "stroke-linejoin:round;stroke-linecap:round}.grid{stroke:var(--line)}.axis{stroke:var(--faint)}"
    ".limit{stroke:var(--c4);stroke-dasharray:6 4}svg text{font-size:13px;fill:var(--soft)}svg "
    "text."
    "tick{font-size:12px;fill:var(--faint)}svg text.title{fill:var(--text);font-size:14px;"
    "font-weight:600}\n"
    ".c0,.c1,.c2,.c3,.c4,.c5,.c6,.c7{stroke-width:1.8}.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}"
    ".c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}.c6{"
    "stroke:var(--c6)}.c7{stroke:var(--c7)}svg path.area{stroke:none}.area.c0{fill:var(--c0)}"
    ".area.c1{fill:var(--c1)}.area.c2{fill:var(--c2)}.area.c3{fill:var(--c3)}.area.c4{fill:var("
    "--c4)}.area.c5{fill:var(--c5)}.area.c6{fill:var(--c6)}.area.c7{fill:var(--c7)}\n"
    ".cursor{stroke:var(--faint);stroke-width:1}#tip{position:fixed;pointer-events:none;display:"
    "none;background:var(--text);color:var(--bg);padding:8px 12px;border-radius:8px;font-size:13px;"
    "line-height:1.45;font-variant-numeric:tabular-nums;z-index:9;box-shadow:0 6px 24px #0004}#tip "
    "b{display:block}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}th{"
    "text-align:right;font-weight:500;color:var(--faint);font-size:13px}td,th{padding:6px 10px;"
    "border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}td:first-child,th:"
    "first-child{text-align:left}tr:last-child td{border-bottom:0}td.text{text-align:left;"
    "white-space:normal;overflow-wrap:anywhere}.bar{display:inline-block;vertical-align:middle;"
    "width:120px;height:8px;border-radius:4px;background:var(--line);overflow:hidden;}"
    ".share{display:inline-block;min-width:52px}.bar "
    "i{display:block;height:100%;background:var(--c0)}\n"
    ".stack{display:flex;height:26px;border-radius:8px;overflow:hidden;background:var(--line)}"
    ".stack i{display:block}.b0{background:var(--c0)}.b1{background:var(--c1)}.b2{background:var("
    "--c2)}.b3{background:var(--c3)}.b4{background:var(--c4)}.b5{background:var(--c5)}.b6{"
    "background:var(--c6)}.b7{background:var(--c7)}.key{display:flex;flex-wrap:wrap;gap:4px 18px;"
    "margin:10px 0 2px;font-size:14px;color:var(--soft)}.key i{display:inline-block;width:10px;"
    "height:10px;border-radius:3px;margin-right:6px}\n"
    "details summary{cursor:pointer;color:var(--soft)}details[open] summary{margin-bottom:10px}"
    "table.settings td:nth-child(1){width:28%}table.settings td:nth-child(2){width:30%}"
    "td.own{color:var(--accent);font-weight:600}code{font:13px ui-monospace,monospace}a{color:var("
    "--accent);text-decoration:none}a:hover{text-decoration:underline}footer{margin-top:48px;color:"
    "var(--faint);font-size:13px}\n"
    "@media print{.panel,.card{break-inside:avoid}body{background:#fff}}\n",
    NULL};

/* One cursor for all curves: the nearest logged step to the pointer, its numbers in a box. */
const char report_script[] =
    "const D=JSON.parse(document.getElementById('data').textContent),T=document.getElementById("
    "'tip'),S=[...document.querySelectorAll('svg[data-frame]')].map(s=>({s,f:JSON.parse(s.dataset."
    "frame)})),N='http://www.w3.org/2000/svg';\n"
    "function near(x){const a=D.step;let l=0,h=a.length-1;while(h-l>1){const m=l+h>>1;a[m]<x?l=m:h="
    "m}return x-a[l]<a[h]-x?l:h}\n"
    "function fmt(v){return v==null?'\\u2013':Math.abs(v)>=1e4?Math.round(v).toLocaleString():"
    "+v.toPrecision(5)+''}\n"
    "function show(e,o){const "
    "r=o.s.getBoundingClientRect(),w=o.s.viewBox.baseVal.width,p=(e.clientX"
    "-r.left)/r.width*w,f=o.f,i=near(f.x0+(p-f.l)/(f.r-f.l)*(f.x1-f.x0)),x=D.step[i];\n"
    "for(const q of S){let c=q.c;if(!c){c=q.c=document.createElementNS(N,'path');c.setAttribute("
    "'class','cursor');q.s.append(c)}const "
    "g=q.f,X=g.l+(x-g.x0)/(g.x1-g.x0)*(g.r-g.l);c.setAttribute"
    "('d',X<g.l-1||X>g.r+1?'':'M'+X+' '+g.t+'V'+g.b)}\n"
    "T.textContent='';const b=document.createElement('b');b.textContent='step '+x;T.append(b);for("
    "const[k,v]of Object.entries(D))if(k!='step'&&v[i]!=null){const "
    "d=document.createElement('div');"
    "d.textContent=k+'  '+fmt(v[i]);T.append(d)}\n"
    "T.style.display='block';const W=T.offsetWidth,H=T.offsetHeight;T.style.left=(e.clientX+18+W>"
    "innerWidth?e.clientX-18-W:e.clientX+18)+'px';T.style.top=Math.min(e.clientY+14,innerHeight-H-"
    "8)"
    "+'px'}\n"
    "function hide(){T.style.display='none';for(const q of S)if(q.c)q.c.setAttribute('d','')}\n"
    "if(D.step&&D.step.length)for(const o of "
    "S){o.s.addEventListener('pointermove',e=>show(e,o));o.s"
    ".addEventListener('pointerleave',hide)}\n";

void report_print_text(const char *s, str *out) {
  for (; *s; s++) {
    if (*s == '&') str_add(out, "&amp;");
    else if (*s == '<') str_add(out, "&lt;");
    else if (*s == '>') str_add(out, "&gt;");
    else if (*s == '"') str_add(out, "&quot;");
    else str_add_char(out, *s);
  }
}

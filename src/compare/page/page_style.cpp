#include "compare/page/html_page.h"

namespace leq {

std::string_view page_style() {
  return R"(
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:1.9rem;line-height:1.2;margin:.2em 0 .3em;overflow-wrap:anywhere}
h2{font-size:1.35rem;margin:2.2em 0 .5em;padding-top:.6em;border-top:1px solid var(--grid)}
h3{font-size:1.02rem;margin:0 0 .4em}
p{max-width:74ch;margin:.5em 0;overflow-wrap:anywhere}
a{color:var(--c1)}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;margin:1em 0;font-size:.92rem}
dl.facts{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:1em 0;font-size:.92rem}
dl.facts dt{color:var(--muted)}
dl.facts dd{margin:0;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(210px,1fr));gap:12px;margin:1.2em 0}
.tile{border:1px solid var(--grid);border-radius:8px;padding:12px 14px}
.tile b{display:block;font-size:1.3rem;line-height:1.3}
.tile span{color:var(--muted);font-size:.88rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:20px;margin:1em 0}
figure{margin:0;border:1px solid var(--grid);border-radius:8px;padding:14px;min-width:0;break-inside:avoid}
figure.wide{grid-column:1/-1}
figure .scroll{overflow-x:auto}
figure.fixed .scroll svg{width:auto;max-width:none}
figcaption{color:var(--muted);font-size:.88rem;margin-top:.5em;max-width:74ch}
.table{overflow-x:auto;margin:1em 0}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 9px;border-bottom:1px solid var(--grid);text-align:left;vertical-align:top}
th{color:var(--muted);font-weight:600;vertical-align:bottom}
td{white-space:nowrap}.wrap td{white-space:normal}
th:first-child,td:first-child{position:sticky;left:0;background:var(--paper)}
td.n,th.n{text-align:right}
#head_to_head td:first-child,#matrix td:first-child{font-weight:600;white-space:nowrap}
.wrap td:first-child{min-width:10ch;font-weight:600}#claims td:first-child{min-width:16ch}
.wrap td:nth-child(4){min-width:26ch}
#head_to_head table{font-size:.78rem}#head_to_head th,#head_to_head td{padding:4px 6px}
.reported{border-left:4px solid var(--c5);padding-left:12px}
.reported table{color:var(--muted)}
details{margin:.6em 0}
summary{cursor:pointer;color:var(--c1);font-size:.92rem}
.badge{display:inline-block;padding:1px 9px;border-radius:99px;font-size:.82rem;font-weight:600;white-space:nowrap;border:1px solid currentColor}
.badge.v0{color:var(--c3)}.badge.v1{color:var(--c5)}.badge.v2{color:var(--c7)}.badge.v3{color:var(--muted)}
#matrix td{text-align:center;padding:3px 7px}
#matrix th{text-align:center}
#matrix td:first-child{text-align:left}
#matrix .plus{color:var(--c3);font-weight:700}#matrix .minus{color:var(--c7);font-weight:700}
code,pre{font:.88em/1.5 ui-monospace,Menlo,Consolas,monospace}
pre{background:color-mix(in srgb,var(--grid) 45%,transparent);padding:10px 14px;border-radius:8px;overflow-x:auto}
@media (max-width:600px){body{font-size:15px}main{padding:14px 12px 40px}h1{font-size:1.45rem}figure{padding:10px}figure .scroll svg{min-width:430px}
dl.facts{grid-template-columns:1fr}dl.facts dt{margin-top:6px}
.wrap table,.wrap tbody,.wrap tr,.wrap td{display:block}.wrap thead{display:none}
.wrap tr{border-bottom:1px solid var(--grid);padding:8px 0}.wrap td{border:0;padding:2px 0}}
@page{margin:14mm 12mm}
@media print{main{max-width:none;padding:0}figure .scroll svg{max-height:205mm}nav,summary{display:none}.table,figure .scroll{overflow:visible}
table{font-size:7.5pt}th,td{padding:2px 4px}
#head_to_head table{font-size:6pt}#head_to_head th,#head_to_head td{padding:2px 3px}.figures{grid-template-columns:1fr 1fr}figure.fixed .scroll svg{width:100%}h2{break-after:avoid}tr{break-inside:avoid}}
)";
}

}  // namespace leq

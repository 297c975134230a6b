"""MediaWiki dumps made for comparison: sentences of our own in several languages, and the constructs that articles of
Wikipedia are made of, chosen pages first, then any number of random ones."""
import html
import random

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <generator>MediaWiki 1.42.0</generator>
    <case>first-letter</case>
    <namespaces>
      <namespace key="-1" case="first-letter">Special</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Talk</namespace>
      <namespace key="6" case="first-letter">File</namespace>
      <namespace key="10" case="first-letter">Template</namespace>
      <namespace key="14" case="first-letter">Category</namespace>
      <namespace key="828" case="first-letter">Module</namespace>
    </namespaces>
  </siteinfo>
"""

TEMPLATES = {
    "Infobox river": """<noinclude>{{Documentation}}
This page makes boxes.</noinclude><includeonly>{| class="infobox"
! colspan=2 | {{{name|{{PAGENAME}}}}}
|-
| Length || {{#if:{{{length|}}}|{{convert|{{{length}}}|km}}|unknown}}
|}</includeonly>""",
    "Convert": "{{#invoke:convert|convert}}<noinclude>[[Category:Units]]</noinclude>",
    "Cvt": "{{convert|{{{1}}}|{{{2}}}}}",
    "Lang": "''{{{2|}}}''<!-- {{{1}}} is dropped -->",
    "Cite web": "<cite class=\"citation\">{{#if:{{{author|}}}|{{{author}}}. }}[{{{url|}}} {{{title|}}}]</cite>",
    "Main": "<div class=\"hatnote\">Main article: [[{{{1}}}]]{{#if:{{{2|}}}|, [[{{{2}}}]]}}</div>",
    "Quote": "<blockquote>{{{1|{{{text|}}}}}}{{#if:{{{2|}}}|<br />{{{2}}}}}</blockquote>",
    "Switch": "{{#switch:{{{1|}}}|a|b=first|c=second|#default=other}}",
    "Count": "{{#ifexpr:{{{1}}}>0|{{{1}}} {{count|{{#expr:{{{1}}}-1}}}}|go}}",
    "Loop": "before {{loop}} after",
    "Shrink": "{{{1}}}{{#if:{{{2|}}}|, {{shrink|{{{2}}}|{{{3|}}}}}}}",
    "Only": "not this<onlyinclude>only this {{{1|default}}}</onlyinclude>nor this<onlyinclude> and that</onlyinclude>",
    "Nested name": "{{{{{{1}}}}}}",
    "Chosen": "{{{{{1}}}|{{{2|}}}}}",
    "Small caps": "<span style=\"font-variant: small-caps\">{{{1}}}</span>",
    "Dash": "&nbsp;&ndash; ",
    "Nowrap": "<span class=\"nowrap\">{{{1}}}</span>",
    "Birth date": "{{#expr:{{CURRENTYEAR}} * 0 + {{{1}}}}}-{{padleft:{{{2}}}|2}}-{{padleft:{{{3}}}|2|0}}",
    "Table row": "{{!}}-\n{{!}} {{{1}}} {{!}}{{!}} {{{2}}}",
    "Braces": "<nowiki>}}</nowiki>{{{1|}}}<nowiki>{{</nowiki>",
    "Redirected": "#REDIRECT [[Template:Lang]]",
    "Case": "{{lc:{{{1}}}}} {{uc:{{{1}}}}} {{ucfirst:{{{1}}}}} {{lcfirst:{{{1}}}}}",
    "Numbers": "{{formatnum:{{{1}}}}} {{formatnum:{{{1}}}|R}} {{#expr:{{{1}}} / 3 round 2}}",
    "Strings": "{{#len:{{{1}}}}}/{{#pos:{{{1}}}|a}}/{{#rpos:{{{1}}}|a}}/{{#sub:{{{1}}}|1|3}}/"
               "{{#count:{{{1}}}|e}}/{{#replace:{{{1}}}|e|E}}/{{#explode:{{{1}}}| |1}}/{{urlencode:{{{1}}}}}",
    "Error": "{{#iferror:{{#expr:{{{1}}}}}|wrong|right}}{{#iferror:{{{2|}}}|bad}}",
    "Equal": "{{#ifeq:{{{1|}}}|yes|it is yes|it is not}}",
    "Default chain": "{{{a|{{{b|{{{c|none}}}}}}}}}",
    "Doc": "text<noinclude>\nunclosed documentation {{Doc}}",
    "Empty": "<noinclude>nothing</noinclude>",
    "Two lines": "\n* item {{{1}}}\n* item {{{2|{{{1}}}}}}\n",
    "Link": "[[{{{1}}}|{{{2|{{{1}}}}}}]]",
    "Ref": "<ref name=\"{{{1}}}\">{{cite web|title={{{1}}}|url=http://example.org/{{{1}}}}}</ref>",
    "Sfn": "<ref>{{{1}}} {{{2}}}, p. {{{p|}}}</ref>",
    "Math": "<math>{{{1}}}</math>",
}

SENTENCES = [
    "The river rises in the eastern hills and flows north for about a hundred kilometres.",
    "Its name, first written down in 1284, may mean \"cold water\" (or simply \"spring\").",
    "In May 1911 the bridge was rebuilt at a cost of £4,500 & opened again in June.",
    "Der Fluß entspringt im Süden; größere Städte liegen nicht an seinem Lauf.",
    "La rivière prend sa source à l'est de la forêt, près d'un ancien moulin à eau.",
    "Река начинается на востоке области и течёт на север через три озера.",
    "Ο ποταμός πηγάζει από τα βουνά και χύνεται στη θάλασσα.",
    "ينبع النهر من الجبال الشرقية ويصب في البحر.",
    "הנהר מתחיל בהרים ונשפך אל הים.",
    "नदी पूर्वी पहाड़ियों से निकलती है और उत्तर की ओर बहती है।",
    "这条河发源于东部山区，向北流约一百公里。",
    "この川は東の丘に源を発し、北へ流れている。",
    "แม่น้ำไหลไปทางเหนือ",
    "Sungai itu mengalir ke utara sejauh 100 km, melalui tiga danau, lalu ke laut...",
    "It is 3 < 4, 5 > 2, and A&B is not A &amp; B.",
    "\U0001f600 Emoji and 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 outside of the basic plane.",
]
WORDS = ["river", "bridge", "Old Town", "1911", "Süden", "Река", "河", "नदी", "النهر", "mill", "forest", "A & B", "x<y",
         "café", "naïve", "île", "ß", "Straße", "ΑΣ", "İstanbul", "ﬁn", "100 km", "{brace}", "a|b", "don't", "\"so\"", "p.m."]
TITLES = ["River", "Old bridge", "List of mills", "Kill Bill: Volume 1", "C++", "AT&T", "Straße", "Река", "東京",
          "Template metaprogramming", "O'Brien", "Category", "50% rule", "A/B test"]

ARTICLES = {
    "Alder River": """{{Infobox river
| name = Alder River
| length = 104
| image = [[File:Alder.jpg|thumb|The [[Alder Valley|valley]] in [[spring (season)|spring]]]]
| source = {{nowrap|1=Eastern {{lang|de|Hügel}}}}
| notes = {{Infobox river|name=inner|length=}}
}}
__NOTOC__
The '''Alder River''' ({{Lang|de|Erlenfluss}}; ''short'': '''''Alder''''') is a [[river]] of {{convert|104|km}}.<ref>{{Cite web
 |url=http://example.org/rivers?a=1&b=2 |title=Rivers of the [[East]] |author=Smith}}</ref><ref name="x" /> It has<!-- a comment
over lines --> three [[tributary|tributaries]], and [[bridge]]s of the [[17th century]].

== History ==
{{Main|History of the Alder River|Old mills}}
[[File:Mill.jpg|thumb|left|upright=1.2|A [[watermill|mill]] by [http://example.org/photo a photographer], with ''quotes'' and [[link [[nested]] link]]]]
People settled here early.{{Sfn|Miller|1911|p=12}} The first mill was built in 1284<ref name="mill">A ref with {{cite web|title=Mill|url=//example.org}} and <nowiki>[[no link]]</nowiki></ref>.

{| class="wikitable"
|+ Mills
! Name !! Year
|-
| North Mill || 1284
|-
| South Mill ||
{| class="inner"
| nested || table
|}
|}
After the table there is text.

=== Empty section ===

==== Deep section ====
* a list item with '''bold'''
* another [[item]]
** deeper
# numbered
; term : definition
: indented line with [[link|label]]
:: deeper indent

== Mathematics ==
The slope is <math>\\frac{a}{b}</math> and also <math display="inline">x^2 < 5</math>, again <math>\\frac{a}{b}</math>; see <code>f(x)</code>.
<syntaxhighlight lang="python">
def f(x):
    return x < 1 & 2
</syntaxhighlight>
<source lang="c">int main() { return 0; }</source>
<pre>preformatted {{Lang|a|b}} [[text]]</pre>

== Gallery ==
<gallery mode="packed">
File:One.jpg|One [[thing]]
File:Two.jpg|Two
</gallery>

== See also ==
* [[Other river]]

== References ==
{{reflist|30em}}
<references />

== External links ==
* [http://example.org Official site]
[[Category:Rivers|Alder]]
[[de:Erlenfluss]]
[[:File:Alder.jpg]] [[:Category:Rivers]] [[w:Alder|Alder at W]] [[wikt:alder|]]
""",
    "Parser functions": """{{#if: | yes | no }} {{#if: x | yes | no }} {{#if: {{{1|}}} | yes }} {{#if:x}}
{{#ifeq: a | a | equal | different }} {{#ifeq: a | b | equal | different }} {{#ifeq: 01 | 1 | equal | different }}
{{#switch: b | a = one | b = two | c = three }} {{#switch: d | a = one | #default = rest }} {{#switch: d | a = one | last }}
{{#switch: b | a | b | c = fall | d = no }} {{switch|a}} {{switch|c}} {{switch|z}} {{Switch}}
{{#expr: 1 + 2 * 3 }} {{#expr: 7 / 2 }} {{#expr: 6 div 2 }} {{#expr: 7 mod 3 }} {{#expr: -7 mod 3 }} {{#expr: 2 ** 10 }} {{#expr: 2 ^ 3 }}
{{#expr: 1.005 * 1000 round 2 }} {{#expr: 2/3 round 3 }} {{#expr: 1250 round -2 }} {{#expr: trunc (7.9) }} {{#expr: trunc 7.9}} {{#expr: not 0 }}
{{#expr: 1 = 1 }} {{#expr: 1 < 2 }} {{#expr: 2 >= 3 }} {{#expr: 1 and 0 }} {{#expr: 0 or 5 }} {{#expr: 1 and 2 and 3}} {{#expr: 0 and x}}
{{#expr: }} {{#expr: abc }} {{#expr: 1 + }} {{#expr: 1/0 }} {{#expr: (1 + 2}} {{#expr: 1e3 + .5 }} {{#expr: 007 }} {{#expr: 3in5}} {{#expr: 1|2}}
{{#ifexpr: 1 + 1 = 2 | true | false }} {{#ifexpr: 0 | true | false }} {{#ifexpr: bad | true | false }} {{#ifexpr: 1 }}
{{#iferror: {{#expr: 1/0}} | failed | fine }} {{#iferror: ok | failed }} {{Error|1+|<strong class="x error y">}} {{Error|1|fine}}
{{lc: ÄBC ΣΑΣ}} {{uc: straße ﬁn ǆ }} {{ucfirst: élan}} {{lcfirst: ÉLAN}} {{case|Mixed İçe}} {{int: 007}} {{int:x}}
{{formatnum: 1234567.891 }} {{formatnum:1234567}} {{formatnum: 1,234 | R }} {{formatnum: ١٢٣ | R}} {{formatnum:abc}} {{formatnum:0.000012345}} {{formatnum:-1e22}}
{{padleft: 7 | 3 }} {{padleft: abc | 6 | xy }} {{padright: abc | 6 | xy }} {{padleft:7}} {{padleft:7|x}} {{padleft:7|5|}}
{{#len: abc }} {{#pos: banana | an }} {{#pos:banana|an|2}} {{#rpos:banana|an}} {{#rpos:banana|x}} {{#sub:banana|1|3}} {{#sub:banana|-3}} {{#sub:banana|1|-1}}
{{#count:banana|an}} {{#replace:banana|an|AN}} {{#replace:banana|a|o|2}} {{#explode:a b c| |1}} {{#explode:a b c| |-1}} {{#explode:a,b,c|,|1|2}}
{{urlencode: a b/c&d ü }} {{urldecode:a%20b%C3%BC%E4x}} {{strings|the sea level}} {{numbers|12345.678}} {{Birth date|1911|5|7}}
{{PAGENAME}} {{FULLPAGENAME}} {{NAMESPACE}} {{currentyear}} {{!}} {{SITENAME}} {{subst:Lang|a|b}} {{safesubst:lc:ABC}}
{{#invoke:convert|convert}} {{#invoke:Foo|bar}} {{#time:Y}} {{#ifexist:x|y|z}} {{unknown template|x}} {{Template:Lang|a|b}} {{:Alder River}}
{{count|3}} {{loop}} {{shrink|a|b|c}} {{only}} {{only|given}} {{Nested name|2|two}} {{Chosen|Lang|en}} {{default chain|c=C}} {{default chain|b=|c=C}} {{default chain}}
{{braces|x}} {{Redirected|de|Wort}} {{Doc}} end {{Empty}} {{Two lines|1}} {{link|A|b}} {{link|A}}s {{ref|q}} {{math|x}} {{Cvt|5|mi}} {{convert|5}} {{convert}}
{{ lang |a| b = c | d }} {{lang|2=named|1=x}} {{lang|'a=b'|c}} {{lang|a|[[b]] }}c {{lang
|a
|b
}}
""",
    "Broken": """{{unclosed | [[link]] text
''' bold without end
'' italic ''' mixed '' text ''' end
'''''five''''' ''''four'''' ''a '''b'' c'''
[[unclosed link and [[closed link]] after
]] closing alone }} and more {|
text [[a|b|c]] [[a|]] [[|b]] [[]] [[[[doubled]]]] [[[single]]] [[[[[odd]]]] x
<ref>unclosed reference with text
Next line </ref> after. <ref name=a>one</ref><ref name=b>two</ref> tail
<div>text <div>inner</div> after inner </div> rest
<b>bold</b> <i>it</i> <br>line<br/>break<br />end <hr> <p>para</p>text<center>c</center>
<span style="a > b">span</span> <!-- unclosed comment
<nowiki>''not italic''</nowiki> <nowiki/> <small>small</small> <sub>1</sub><sup>2</sup>
( ) [ ] , . ; : ! a , b . c ) ( d [ e ] << f >> 1,,2 3,.4 .... ..... a  b\tc
-
...
!!!
(whole line in parentheses)
++Page title++
| residue of a table
} residue
{ residue
residue }
&lt;b&gt; &amp;amp; &quot; &#65; &#x41; &#X41; &nbsp; &bogus; &#xD83D;&#xDE00; &#1114112; &#xD800; &copy &rarr;
== Heading with trailing == text
= Level one =
==Tight==
===Unbalanced==
== ==
====
== Question? ==
Line.
== A ==
== B ==
=== C ===
Text under C.
=== D ===
== E ==
""",
    "Empty text": "",
    "Redirect article": "#REDIRECT [[Alder River]]",
    "Only a list": "* a\n* b\n* c",
    "Links": """[http://example.org] [http://example.org label] [https://example.org/a_b(c) label with spaces] [//example.org x]
[mailto:a@example.org mail] [ftp://example.org/ f] [news:group n] [http://a.org http://b.org/x.png] [http://a.org text] [HTTP://A.org Up]
http://bare.example.org/path?q=1 and [http://x.org unclosed
[http://x.org
label on the next line] [http://x.org ''it''] [not a link] [1] [[a]] [http://x.org [[b]]] [[c [http://y.org d]]]
[[Wikipedia:Policy|policy]] [[Help:Contents]] [[fr:Rivière]] [[:fr:Rivière|en français]] [[w:X|X]] [[wiktionary:y|y]] [[Kill Bill: Volume 1]]
[[File:a.jpg|thumb|caption [[link|label]] and [[File:b.jpg|inner [[deep]] ]] more]] after [[Image:c.png|[[d]]]]
[[Fluss|Flüsse]]n [[река]]и [[word]]s[[other]]ed [[a#section|b]] [[#section]] [[a (b)|]] [[a|b]]' [[a| b ]]c [[
x]] [[multi
line|label]]
""",
}


OPERANDS = ["1", "20", "3.5", "+", "-", "*", "/", " round ", " mod ", "(", ")", "<", "=", " and ", "not ", " or ", ">=", "0", "7", "2"]


def fill_in(rng, depth=0):
    """A piece of wikitext."""
    word = lambda: rng.choice(WORDS)
    text = (lambda: fill_in(rng, depth + 1)) if depth < 3 else word
    kinds = [
        lambda: rng.choice(SENTENCES), word, word, lambda: rng.choice(SENTENCES) + " " + text(),
        lambda: f"'''{text()}'''", lambda: f"''{text()}''", lambda: f"'''''{text()}'''''", lambda: f"''\"{text()}\"''",
        lambda: f"[[{word()}]]{rng.choice(['', 's', 'ен', '’s'])}", lambda: f"[[{word()}|{text()}]]",
        lambda: f"[[File:{word()}.jpg|thumb|{rng.choice(['left|', '200px|', ''])}{text()}]]",
        lambda: f"[[Category:{word()}]]", lambda: f"[[de:{word()}]]", lambda: f"[http://example.org/{rng.randrange(99)} {text()}]",
        lambda: f"[https://example.org/?a={rng.randrange(9)}&b=2]",
        lambda: "<ref" + rng.choice(["", " name=a", ' name="a/b"', ' group="n" name="x"']) + f">{text()}</ref>",
        lambda: "<ref name=\"a > b\" />", lambda: f"{{{{lang|de|{text()}}}}}", lambda: f"{{{{Quote|{text()}|{text()}}}}}",
        lambda: f"{{{{convert|{rng.randrange(500)}|km}}}}", lambda: f"{{{{Main|{word()}|{text()}}}}}",
        lambda: f"{{{{#if:{rng.choice(['', 'x'])}|{text()}|{text()}}}}}", lambda: f"{{{{#ifeq:{word()}|{word()}|{text()}|{text()}}}}}",
        lambda: f"{{{{switch|{rng.choice('abcd')}}}}}", lambda: f"{{{{#switch:{word()}|{word()}={text()}|#default={text()}}}}}",
        lambda: "{{#expr:" + "".join(rng.choices(OPERANDS, k=rng.randrange(1, 9))) + "}}",
        lambda: f"{{{{small caps|{text()}}}}}", lambda: f"{{{{unknown|{text()}}}}}", lambda: f"{{{{Chosen|{rng.choice(list(TEMPLATES))}|{text()}}}}}",
        lambda: f"{{{{{rng.choice(list(TEMPLATES))}|{text()}|{word()}={text()}|{text()}}}}}",
        lambda: f"{{{{{rng.choice(list(TEMPLATES)).lower()}\n | 1 = {text()}\n | b={text()}\n}}}}",
        lambda: f"{{{{{{{word()}|{text()}}}}}}}", lambda: f"<!-- {text()} -->", lambda: f"<nowiki>{text()}</nowiki>",
        lambda: f"<math>{word()}</math>", lambda: f"<code>{text()}</code>", lambda: f"<br{rng.choice(['', '/', ' /', ' clear=all'])}>",
        lambda: f"<{(t := rng.choice(['b', 'i', 'span', 'div', 'small', 'sub', 'center', 'p', 'h2', 'u', 'em', 'table', 'abbr']))}"
                + rng.choice(["", ' class="x"', ' style="a:b"']) + f">{text()}</{t}>",
        lambda: f"\n{{| class=\"wikitable\"\n! {text()}\n|-\n| {text()} || {text()}\n|}}\n", lambda: f"\n* {text()}\n* {text()}\n",
        lambda: f"\n# {text()}\n", lambda: f"\n; {word()} : {text()}\n", lambda: f"\n: {text()}\n",
        lambda: f"\n{'=' * (n := rng.randrange(1, 5))} {text()} {'=' * n}\n", lambda: f"\n\n{text()}\n\n",
        lambda: f"<gallery>\nFile:{word()}.jpg|{text()}\n</gallery>", lambda: f"<syntaxhighlight lang=\"c\">{text()}</syntaxhighlight>",
        lambda: rng.choice(["__NOTOC__", "__TOC__", "&nbsp;", "&mdash;", "&lt;", "&#8211;", "{{!}}", "{{PAGENAME}}", "{{dash}}", "~~~~"]),
        lambda: f"({text()}, {text()})", lambda: f"[[{word()}]], [[{word()}]] and [[{word()}|{text()}]].",
    ]
    return rng.choice(kinds)()


NOISE = ["{{", "}}", "{{{", "}}}", "[[", "]]", "[", "]", "|", "=", "''", "'''", "<", ">", "<ref>", "</ref>", "<ref", "/>", "\n", "\n\n",
         "{|", "|}", "==", "<!--", "-->", "<nowiki>", "</nowiki>", "<div>", "</div>", "<b>", "</b>", "&", ";", ":", "*", " ", "  ", "\t",
         ".", ",", "(", ")", "\"", "«", "»", "<<", ">>", "<math>", "</math>", "http://x.org", "File:", "#if:", "lang", "1", "a", "é", "-"]


def noise(rng):
    """Constructs that break off and overlap."""
    pieces = [rng.choice(NOISE) if rng.random() < .6 else fill_in(rng, 2) for _ in range(rng.randrange(2, 30))]
    return "".join(pieces)


def page(title, text, number, namespace=0):
    text = html.escape(text, quote=False).replace('"', "&quot;")
    redirect = '\n    <redirect title="X" />' if text.upper().startswith("#REDIRECT") else ""
    body = f'<text bytes="{len(text)}" xml:space="preserve">{text}</text>' if text else '<text bytes="0" xml:space="preserve" />'
    return f"""  <page>
    <title>{html.escape(title, quote=False)}</title>
    <ns>{namespace}</ns>
    <id>{number}</id>{redirect}
    <revision>
      <id>{number + 100000}</id>
      <timestamp>2024-01-02T03:04:05Z</timestamp>
      <contributor>
        <username>Somebody</username>
        <id>{number * 7 % 1000}</id>
      </contributor>
      <model>wikitext</model>
      <format>text/x-wiki</format>
      {body}
      <sha1>abc</sha1>
    </revision>
  </page>
"""


def chosen_pages():
    pages, number = [], 1
    for title, text in TEMPLATES.items():
        pages.append(page("Template:" + title, text, number := number + 1, 10))
    for title, text in ARTICLES.items():
        pages.append(page(title, text, number := number + 1))
    pages.append(page("Talk:Alder River", "Talk.", number := number + 1, 1))
    pages.append(page("Category:Rivers", "Rivers.", number := number + 1, 14))
    pages += [page(title, f"'''{title}''' is {{{{PAGENAME}}}}. {SENTENCES[i]}", number := number + 1)
              for i, title in enumerate(TITLES)]
    return pages


def random_article(rng):
    paragraphs = []
    for _ in range(rng.randrange(1, 12)):
        if rng.random() < .3:
            level = "=" * rng.randrange(2, 5)
            paragraphs.append(f"{level} {rng.choice(WORDS)} {level}")
        paragraphs.append(" ".join(fill_in(rng) for _ in range(rng.randrange(1, 7))))
    return rng.choice(["\n", "\n\n"]).join(paragraphs)


def random_template(rng):
    """A body with parameters, for a template of its own name."""
    parts = [rng.choice([fill_in(rng, 1), "{{{1}}}", "{{{2|}}}", "{{{b|{{{1|x}}}}}}", "{{{{{1}}}}}", "<includeonly>", "</includeonly>",
                         "<noinclude>", "</noinclude>", "<onlyinclude>", "</onlyinclude>", "{{#if:{{{1|}}}|", "}}", "\n"])
             for _ in range(rng.randrange(1, 8))]
    return "".join(parts)


ENGLISH = ("the of and in to a was river for on with as by at from it an is were bridge town century people built water north "
           "also which first new after two").split()


def sentence(rng):
    """English, with links and references as dense as in articles."""
    words = rng.choices(ENGLISH, k=rng.randrange(8, 25))
    for i, word in enumerate(words):
        chance = rng.random()
        if chance < .08:
            words[i] = f"[[{word} {i}|{word}]]" if chance < .04 else f"[[{word}]]" if chance < .07 else f"''{word}''"
    text = " ".join(words).capitalize() + "."
    if rng.random() < .35:
        text += (f"<ref>{{{{Cite web |url=http://example.org/{rng.randrange(1000)}?a=1&b=2 |title={' '.join(words[:5])} |author=Smith "
                 "|access-date=2020-01-02}}</ref>")
    return text + (f" It is {{{{convert|{rng.randrange(900)}|km}}}} long." if rng.random() < .05 else "")


def plain_pages(seed, count):
    """Articles as English Wikipedia has them, of 3 to 50 kB."""
    rng = random.Random(seed)
    pages = [page("Template:" + title, text, i + 2, 10) for i, (title, text) in enumerate(TEMPLATES.items())]
    for i in range(count):
        parts = [ARTICLES["Alder River"]]
        for k in range(rng.randrange(2, 40)):
            heading = f"== Part {k} ==\n\n" if rng.random() < .2 else ""
            parts.append(heading + " ".join(sentence(rng) for _ in range(rng.randrange(2, 9))))
        pages.append(page(f"Page {i}", "\n\n".join(parts), 1000 + i))
    return pages


def dump(pages):
    return HEAD + "".join(pages) + "</mediawiki>\n"


def random_pages(seed, count, broken=.15):
    """Articles, some of them broken, over the chosen templates and a few random ones."""
    rng = random.Random(seed)
    pages = [page("Template:" + title, text, i + 2, 10) for i, (title, text) in enumerate(TEMPLATES.items())]
    names = [f"Random {i}" for i in range(20)]
    pages += [page("Template:" + name, random_template(rng), 500 + i, 10) for i, name in enumerate(names)]
    for i in range(count):
        text = noise(rng) if rng.random() < broken else random_article(rng)
        if rng.random() < .2:
            text += f"\n{{{{{rng.choice(names)}|{fill_in(rng)}|b={fill_in(rng)}}}}}\n"
        pages.append(page(f"{rng.choice(TITLES[:9])} {i}", text, 1000 + i))
    return pages

package syntax

import (
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// mode is how to read the outermost level of a text.
type mode int

const (
	native     mode = iota // blocks and attributes: a line end ends an expression
	expression             // one expression: line ends mean nothing
	template               // text with ${…} and %{…}
)

// depth measures how deeply a sequence of tokens is nested. It is at least the depth of the parser's recursion for
// these tokens, and the height of the resulting tree.
//
// Each open bracket, quote, heredoc and template sequence is a level. Within one, each operator, question mark and
// bracket adds one until a comma or a significant line end, because all of them may end up below each other: a?b:a?b:…,
// 1+1+…, !!!…, a[0][0]….
type depth struct {
	levels []level // the outermost first; never empty
	total  int
}

type level struct {
	open      hclsyntax.TokenType // 0 for the outermost
	mode      mode                // of the outermost
	operators int                 // since the expression began
	controls  int                 // %{ if } and %{ for } that have not ended
	loop      bool                // has a for: line ends mean nothing
}

func (d *depth) top() *level { return &d.levels[len(d.levels)-1] }

// closers maps each token that closes a level to those that open it.
var closers = map[hclsyntax.TokenType][2]hclsyntax.TokenType{
	hclsyntax.TokenCParen:         {hclsyntax.TokenOParen},
	hclsyntax.TokenCBrack:         {hclsyntax.TokenOBrack},
	hclsyntax.TokenCBrace:         {hclsyntax.TokenOBrace},
	hclsyntax.TokenCQuote:         {hclsyntax.TokenOQuote},
	hclsyntax.TokenCHeredoc:       {hclsyntax.TokenOHeredoc},
	hclsyntax.TokenTemplateSeqEnd: {hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl},
}

// step processes a token; next holds the tokens after it.
func (d *depth) step(token hclsyntax.Token, next hclsyntax.Tokens) {
	top := d.top()
	switch token.Type {
	case hclsyntax.TokenOParen, hclsyntax.TokenOBrack, hclsyntax.TokenOBrace:
		d.operator(top)
		d.push(token.Type)
	case hclsyntax.TokenTemplateControl:
		d.control(top, next)
		d.push(token.Type)
	case hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp:
		d.push(token.Type)
	case hclsyntax.TokenCParen, hclsyntax.TokenCBrack, hclsyntax.TokenCBrace, hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
		// An unmatched token closes no level: the parser reports it.
		if opens := closers[token.Type]; top.open != 0 && (top.open == opens[0] || top.open == opens[1]) {
			d.total -= 1 + top.operators + top.controls
			d.levels = d.levels[:len(d.levels)-1]
		}
	case hclsyntax.TokenComma:
		d.reset(top)
	case hclsyntax.TokenNewline:
		d.lineEnd(top)
	case hclsyntax.TokenComment:
		if strings.HasSuffix(string(token.Bytes), "\n") {
			d.lineEnd(top)
		}
	case hclsyntax.TokenIdent:
		top.loop = top.loop || string(token.Bytes) == "for"
	case hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPlus, hclsyntax.TokenMinus, hclsyntax.TokenPercent,
		hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan, hclsyntax.TokenLessThanEq,
		hclsyntax.TokenGreaterThan,
		hclsyntax.TokenGreaterThanEq, hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenBang, hclsyntax.TokenQuestion:
		d.operator(top)
	}
}

func (d *depth) push(open hclsyntax.TokenType) {
	d.levels = append(d.levels, level{open: open})
	d.total++
}

func (d *depth) operator(l *level) {
	l.operators++
	d.total++
}

func (d *depth) reset(l *level) {
	d.total -= l.operators
	l.operators = 0
}

// lineEnd ends the expression where line ends matter: between braces, unless these are a loop, and outside of all.
func (d *depth) lineEnd(l *level) {
	if l.open == hclsyntax.TokenOBrace && !l.loop || l.open == 0 && l.mode == native {
		d.reset(l)
	}
}

// control processes a template sequence %{ … } by its first word.
func (d *depth) control(l *level, next hclsyntax.Tokens) {
	for _, token := range next {
		switch token.Type {
		case hclsyntax.TokenNewline, hclsyntax.TokenComment:
			continue
		case hclsyntax.TokenIdent:
			switch string(token.Bytes) {
			case "if", "for":
				l.controls++
				d.total++
			case "endif", "endfor":
				if l.controls > 0 {
					l.controls--
					d.total--
				}
			}
		}
		return
	}
}

// hugeNumber reports whether a number's exponent is out of bounds.
func hugeNumber(text string) bool {
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return false
	}
	exponent, err := strconv.Atoi(text[i+1:])
	return err != nil || exponent > maxExponent || exponent < -maxExponent
}

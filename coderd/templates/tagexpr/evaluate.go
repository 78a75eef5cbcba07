package tagexpr

import (
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/codermesh/codermesh/v2/internal/syntax"
)

// functions lists those whose result is never longer than their arguments together.
var functions = map[string]function.Function{
	"lower":      stdlib.LowerFunc,
	"upper":      stdlib.UpperFunc,
	"trimspace":  stdlib.TrimSpaceFunc,
	"trim":       stdlib.TrimFunc,
	"trimprefix": stdlib.TrimPrefixFunc,
	"trimsuffix": stdlib.TrimSuffixFunc,
	"substr":     stdlib.SubstrFunc,
	"lookup":     stdlib.LookupFunc,
	"contains":   stdlib.ContainsFunc,
	"coalesce":   stdlib.CoalesceFunc,
	"merge":      stdlib.MergeFunc,
	"tostring":   stdlib.MakeToFunc(cty.String),
	"tonumber":   toNumber,
	"tobool":     stdlib.MakeToFunc(cty.Bool),
}

// evaluation is one run of a program.
type evaluation struct {
	program *Program
	values  map[string]string // of parameters, by name
	vars    map[string]cty.Value
	locals  map[string]cty.Value
	open    map[string]bool // locals whose computation has not finished
}

// Tags computes the tags from the values of parameters and variables, given by name.
func (p *Program) Tags(values map[string]string, variables map[string]Variable) (map[string]string, error) {
	e := evaluation{program: p, values: values, vars: map[string]cty.Value{}, locals: map[string]cty.Value{}, open: map[string]bool{}}
	for name, v := range variables {
		value, err := v.value()
		if err != nil {
			continue // a use of it is an error: it is missing
		}
		e.vars[name] = value
	}
	tags := map[string]string{}
	for _, text := range p.Blocks {
		value, err := e.evaluate(text)
		if err != nil {
			return nil, err
		}
		value, err = convert.Convert(value, cty.Map(cty.String))
		if err != nil {
			return nil, fmt.Errorf("the tags are no map of text: %w", err)
		}
		if value.IsNull() || !value.IsWhollyKnown() {
			return nil, errors.New("the tags have no value")
		}
		for key, tag := range value.AsValueMap() {
			if tag.IsNull() {
				return nil, fmt.Errorf("the tag %q has no value", key)
			}
			if other, had := tags[key]; had && other != tag.AsString() {
				return nil, fmt.Errorf("the tag %q is both %q and %q", key, other, tag.AsString())
			}
			tags[key] = tag.AsString()
		}
	}
	return tags, nil
}

func (v Variable) value() (cty.Value, error) {
	text := cty.StringVal(v.Value)
	switch v.Type {
	case "", "string":
		return text, nil
	case "number":
		return number(text)
	case "bool":
		return convert.Convert(text, cty.Bool)
	}
	return cty.NilVal, fmt.Errorf("a variable of type %s is not possible there", v.Type)
}

func (e *evaluation) evaluate(text string) (cty.Value, error) {
	var parser syntax.Parser
	expr, diags := parser.Expression("tags", []byte(text))
	if diags.HasErrors() {
		return cty.NilVal, fmt.Errorf("read expression: %w", diags)
	}
	// Stored programs were checked when they were made; a check is cheap.
	if err := allowed(expression{Expression: expr, where: "tags"}); err != nil {
		return cty.NilVal, err
	}
	boundNumbers(expr)
	scope := &hcl.EvalContext{Functions: functions, Variables: map[string]cty.Value{"var": cty.ObjectVal(e.vars)}}
	parameters, locals := map[string]cty.Value{}, map[string]cty.Value{}
	for _, t := range expr.Variables() {
		switch t.RootName() {
		case "local":
			value, err := e.local(step(t, 1))
			if err != nil {
				return cty.NilVal, err
			}
			locals[step(t, 1)] = value
		case "data":
			label := step(t, 2)
			value, err := e.parameter(label)
			if err != nil {
				return cty.NilVal, err
			}
			parameters[label] = value
		}
	}
	scope.Variables["local"] = cty.ObjectVal(locals)
	scope.Variables["data"] = cty.ObjectVal(map[string]cty.Value{"coder_parameter": cty.ObjectVal(parameters)})
	value, diags := expr.Value(scope)
	if diags.HasErrors() {
		return cty.NilVal, fmt.Errorf("compute tags: %w", diags)
	}
	if size(value) > maxValue {
		return cty.NilVal, fmt.Errorf("a value is longer than %d bytes", maxValue)
	}
	return value, nil
}

func (e *evaluation) local(name string) (cty.Value, error) {
	if value, ok := e.locals[name]; ok {
		return value, nil
	}
	text, ok := e.program.Locals[name]
	if !ok || e.open[name] {
		return cty.NilVal, fmt.Errorf("local.%s depends on itself, or does not exist", name)
	}
	e.open[name] = true
	value, err := e.evaluate(text)
	if err != nil {
		return cty.NilVal, err
	}
	e.locals[name] = value
	return value, nil
}

func (e *evaluation) parameter(label string) (cty.Value, error) {
	text, ok := e.program.Parameters[label]
	if !ok || e.open["data."+label] {
		return cty.NilVal, fmt.Errorf("there is no parameter %s", label)
	}
	e.open["data."+label] = true
	name, err := e.evaluate(text)
	delete(e.open, "data."+label)
	if err != nil {
		return cty.NilVal, err
	}
	if name.IsNull() || !name.IsKnown() || name.Type() != cty.String {
		return cty.NilVal, fmt.Errorf("the name of the parameter %s is not a string", label)
	}
	value, ok := e.values[name.AsString()]
	if !ok {
		return cty.NilVal, fmt.Errorf("the parameter %s has no value", name.AsString())
	}
	if len(value) > maxValue {
		return cty.NilVal, fmt.Errorf("the value of the parameter %s is longer than %d bytes", name.AsString(),
			maxValue)
	}
	return cty.ObjectVal(map[string]cty.Value{"value": cty.StringVal(value), "name": name}), nil
}

// size returns the length of the text in a value.
func size(v cty.Value) int {
	if v.IsNull() || !v.IsKnown() {
		return 0
	}
	switch {
	case v.Type() == cty.String:
		return len(v.AsString())
	case v.CanIterateElements():
		n := 0
		for it := v.ElementIterator(); it.Next(); {
			key, element := it.Element()
			n += size(key) + size(element)
		}
		return n
	}
	return 8
}

package tagexpr

import (
	"errors"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
)

// maxBits bounds the binary exponent of a number in both directions. Text becomes a number wherever one is needed, and
// a number is written out in full where text is needed: 1e999999999 would take a gigabyte.
const maxBits = 4096

var errNumber = errors.New("the number is too large or too small")

// number converts a value to a number within bounds.
func number(v cty.Value) (cty.Value, error) {
	n, err := convert.Convert(v, cty.Number)
	if err != nil || n.IsNull() || !n.IsKnown() {
		return n, err
	}
	f := n.AsBigFloat()
	if bits := f.MantExp(nil); f.IsInf() || bits > maxBits || bits < -maxBits {
		return cty.NilVal, errNumber
	}
	return n, nil
}

var toNumber = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowNull: true}},
	Type:   function.StaticReturnType(cty.Number),
	Impl:   func(args []cty.Value, _ cty.Type) (cty.Value, error) { return number(args[0]) },
})

// boundedOperations maps the parser's arithmetic operations to ones that bound their operands.
var boundedOperations = func() map[*hclsyntax.Operation]*hclsyntax.Operation {
	all := map[*hclsyntax.Operation]*hclsyntax.Operation{}
	for _, op := range []*hclsyntax.Operation{
		hclsyntax.OpAdd, hclsyntax.OpSubtract, hclsyntax.OpMultiply, hclsyntax.OpDivide, hclsyntax.OpModulo, hclsyntax.OpNegate,
	} {
		all[op] = &hclsyntax.Operation{Impl: boundedOperands(op.Impl), Type: op.Type}
	}
	return all
}()

func boundedOperands(impl function.Function) function.Function {
	var params []function.Parameter
	for _, p := range impl.Params() {
		params = append(params, function.Parameter{Name: p.Name, Type: cty.DynamicPseudoType})
	}
	return function.New(&function.Spec{
		Params: params, Type: function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			operands := make([]cty.Value, len(args))
			for i, arg := range args {
				var err error
				if operands[i], err = number(arg); err != nil {
					return cty.NilVal, function.NewArgError(i, err)
				}
			}
			return impl.Call(operands)
		},
	})
}

// boundNumbers makes an expression compute with bounded numbers.
func boundNumbers(expr hclsyntax.Expression) {
	// The callback returns no diagnostics, so there are none.
	_ = hclsyntax.VisitAll(expr, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.BinaryOpExpr:
			if op := boundedOperations[n.Op]; op != nil {
				n.Op = op
			}
		case *hclsyntax.UnaryOpExpr:
			if op := boundedOperations[n.Op]; op != nil {
				n.Op = op
			}
		}
		return nil
	})
}

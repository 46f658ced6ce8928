package optimizer

import "fmt"

// State gives what an optimizer carries from step to step, to be saved and restored in place: moments as long as the
// weights, and running products. Plain SGD carries nothing.
func State(o Optimizer) (moments [][]float32, powers []*float64) {
	switch o := o.(type) {
	case *AdamW:
		return [][]float32{o.m, o.v}, []*float64{&o.pow1, &o.pow2}
	case *SGD:
		return nil, nil
	}
	panic(fmt.Sprintf("broken promise: the state of a %T is known", o))
}

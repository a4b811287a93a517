package leakcheck

import (
	"reflect"
	"unsafe"

	"github.com/idem-go/idem/core"
)

const poison = 0xA5

// Scribble overwrites the memory that v, a pointer or a slice, has kept for another use: all bytes and all fields that its slices
// have room for, however deep. Lengths stay, and so do numbers and strings.
func Scribble(v any) {
	switch v := reflect.ValueOf(v); v.Kind() {
	case reflect.Slice:
		scribble(v)
	default:
		scribble(v.Elem())
	}
}

func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanAddr() {
				field = reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem() // unexported ones, too
			}
			scribble(field)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			scribble(v.Elem())
		}
	case reflect.Slice:
		all := v.Slice(0, v.Cap())
		switch all := all.Interface().(type) {
		case []byte:
			for i := range all {
				all[i] = poison
			}
		case []core.Field:
			for i := range all {
				all[i] = core.Field{Name: "X-Poison", Value: "poison"}
			}
		default:
			for i := range v.Cap() {
				scribble(reflect.ValueOf(all).Index(i))
			}
		}
	}
}

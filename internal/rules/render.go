package rules

import (
	"fmt"
	"reflect"
	"strings"
)

// titleTag is the tag of a fact's field that says what the fact is called where a table is printed, without which it is the field's name.
const titleTag = "fact"

// Conditions lists what a row looks at, as "title: values", in the order of the facts.
func Conditions[F any](when F) (conditions []string) {
	facts := reflect.TypeFor[F]()
	all := valuesOf[F]()
	for i, mask := range cellsOf(&when) {
		if mask == 0 || mask == all[i] {
			continue
		}
		field := facts.Field(i)
		title := field.Tag.Get(titleTag)
		if title == "" {
			title = strings.ToLower(field.Name)
		}
		conditions = append(conditions, title+": "+valuesIn(field.Type, mask))
	}
	return conditions
}

// valuesIn a mask of a fact's type.
func valuesIn(fact reflect.Type, mask uint8) string {
	var words []string
	value := reflect.New(fact).Elem()
	for rest := mask; rest != 0; rest &= rest - 1 {
		value.SetUint(uint64(rest & -rest))
		words = append(words, fmt.Sprint(value.Interface()))
	}
	return strings.Join(words, ", ")
}

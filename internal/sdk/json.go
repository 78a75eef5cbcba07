package sdk

import "encoding/json"

// List is a slice that is [] in JSON when it is nil. A []T can be assigned to it and back.
type List[T any] []T

func (l List[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]T(l))
}

// Map is a map that is {} in JSON when it is nil. A map[string]V can be assigned to it and back.
type Map[V any] map[string]V

func (m Map[V]) MarshalJSON() ([]byte, error) {
	if m == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(map[string]V(m))
}

// Response is the body of every error, and of the few answers that carry nothing but a message.
type Response struct {
	Message     string       `json:"message"`
	Detail      string       `json:"detail,omitempty"`
	Validations []Validation `json:"validations,omitempty"`
}

// Validation names one input that was refused.
type Validation struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

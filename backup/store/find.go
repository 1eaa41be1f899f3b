package store

import (
	"context"
	"fmt"
)

// Find lists the one object of a key. ErrAbsent: there is none.
func Find(ctx context.Context, s Store, key string) (Object, error) {
	if err := CheckKey(key); err != nil {
		return Object{}, err
	}
	for o, err := range s.List(ctx, key) {
		switch {
		case err != nil:
			return Object{}, Because(ctx, err)
		case o.Key == key:
			return o, nil
		case o.Key > key:
			return Object{}, absent(s, key)
		}
	}
	return Object{}, absent(s, key)
}

func absent(s Store, key string) error { return fmt.Errorf("%w called %s in %v", ErrAbsent, key, s) }

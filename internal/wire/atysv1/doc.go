// Package atysv1 holds the messages of atys.proto, generated.
package atysv1

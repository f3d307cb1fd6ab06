// Package spec is what users write down: which targets, which series, what is to be done with them.
package spec

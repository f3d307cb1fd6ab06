package render

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"

	"atys.dev/atys/internal/profile"
)

// swatch is a colour family in OKLCH: equal lightness looks equally light in
// every hue, so that no kind of frame shouts.
type swatch struct {
	Name   string  `json:"name"`
	Hue    float64 `json:"hue"`
	Chroma float64 `json:"chroma"`
}

// kindSwatches are indexed by profile.Kind.
func kindSwatches() []swatch {
	return []swatch{
		{"unknown", 260, 0.008}, {"native", 70, 0.078}, {"kernel", 285, 0.042}, {"python", 240, 0.062},
		{"java-jit", 152, 0.07}, {"java-interpreted", 122, 0.075}, {"v8", 103, 0.09}, {"ruby", 18, 0.07},
		{"php", 305, 0.06}, {"perl", 195, 0.055}, {"dotnet", 325, 0.06}, {"beam", 350, 0.065}, {"jit", 178, 0.06},
	}
}

// classSwatches are indexed by profile.Class.
func classSwatches() []swatch {
	return []swatch{
		{"unknown", 260, 0.008}, {"application", 58, 0.085}, {"library", 225, 0.055}, {"runtime", 155, 0.055}, {"kernel", 285, 0.042},
	}
}

// swatchOf picks a frame's colour family; frames that are not code stay grey.
func swatchOf(f profile.Frame, by ColorBy, lead bool) swatch {
	kinds, classes := kindSwatches(), classSwatches()
	switch {
	case lead:
		return kinds[0]
	case by == ByClass && int(f.Class) < len(classes):
		return classes[f.Class]
	case by == ByPackage:
		pkg := packageOf(f)
		if pkg == "" {
			return kinds[0]
		}
		return swatch{Name: pkg, Hue: float64(hash(pkg)%24) * 15, Chroma: 0.06}
	case by != ByClass && int(f.Kind) < len(kinds):
		return kinds[f.Kind]
	}
	return kinds[0]
}

// shadeOf tells neighbours of one family apart: 0 to 3, fixed by the function's name.
func shadeOf(function string) int { return int(hash(function) % 4) }

func hash(s string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s))
	return h.Sum32()
}

// fill is a box's colour; viewer/color.js computes the same.
func (s swatch) fill(shade int, inlined, dark bool) string {
	l, c := 0.815+0.022*float64(shade), s.Chroma
	if dark {
		l, c = 0.385+0.024*float64(shade), s.Chroma*0.8
	}
	if inlined {
		c *= 0.55
		if dark {
			l -= 0.04
		} else {
			l += 0.04
		}
	}
	return hex(rgb(l, c, s.Hue))
}

// rgb converts OKLCH to sRGB (Ottosson 2020, "A perceptual color space for image processing").
func rgb(lightness, chroma, hue float64) (r, g, b uint8) {
	rad := hue * math.Pi / 180
	ca, cb := chroma*math.Cos(rad), chroma*math.Sin(rad)
	l := cube(lightness + 0.3963377774*ca + 0.2158037573*cb)
	m := cube(lightness - 0.1055613458*ca - 0.0638541728*cb)
	s := cube(lightness - 0.0894841775*ca - 1.2914855480*cb)
	return gamma(4.0767416621*l - 3.3077115913*m + 0.2309699292*s),
		gamma(-1.2684380046*l + 2.6097574011*m - 0.3413193965*s),
		gamma(-0.0041960863*l - 0.7034186147*m + 1.7076147010*s)
}

func cube(x float64) float64 { return x * x * x }

func gamma(x float64) uint8 {
	x = max(0, min(x, 1))
	if x <= 0.0031308 {
		x *= 12.92
	} else {
		x = 1.055*math.Pow(x, 1/2.4) - 0.055
	}
	return uint8(math.Round(x * 255))
}

// packageOf names the package a function belongs to, as far as its name tells
// one; otherwise the binary or script it came from.
func packageOf(f profile.Frame) string {
	name := f.Function
	if i := strings.IndexAny(name, "(<["); i > 0 {
		name = name[:i] // arguments and type parameters name other packages
	}
	slash := strings.LastIndexByte(name, '/') + 1
	switch f.Kind {
	case profile.KindKernel:
		return "kernel"
	case profile.KindJavaCompiled, profile.KindJavaInterpreted, profile.KindDotNet:
		if class := beforeLast(name, "."); strings.Contains(class, ".") {
			return beforeLast(class, ".")
		}
	default:
		if i := strings.Index(name, "::"); i > 0 {
			return strings.TrimLeft(name[strings.LastIndexByte(name[:i], ' ')+1:i], "*& ")
		}
		if i := strings.IndexByte(name[slash:], '.'); i > 0 && f.Kind == profile.KindNative {
			return name[:slash+i]
		}
	}
	path := f.Mapping
	if path == "" {
		path = f.File
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}

func beforeLast(s, sep string) string {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i]
	}
	return ""
}

const (
	hueMore = 27  // of what grew
	hueLess = 252 // of what shrank
)

// changeFill colours a comparison: red grew, blue shrank, grey could be chance.
func changeFill(relative float64, significant, dark bool) string {
	size := 0.0
	if significant {
		size = math.Round(min(1, math.Abs(relative))*12) / 12
	}
	l, c, hue := 0.915, 0.004, 260.0
	if dark {
		l, c = 0.36, 0.006
	}
	if size > 0 {
		l, c, hue = 0.9-0.2*size, 0.03+0.11*size, hueLess
		if dark {
			l = 0.37 + 0.14*size
		}
		if relative > 0 {
			hue = hueMore
		}
	}
	return hex(rgb(l, c, hue))
}

func hex(r, g, b uint8) string { return fmt.Sprintf("#%02x%02x%02x", r, g, b) }

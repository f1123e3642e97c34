#!/bin/sh
# Remove files that no server needs from an environment: deploy/slim.sh FOLDER. Needs strip (binutils)
# and patchelf.
set -eu
cd "$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"

# Files for compilers and tests of libraries. CUDA's libraries are not changed.
find . -path ./nvidia -prune -o -type d \( -name tests -o -name include \) -prune -exec rm -rf {} +
find . -path ./nvidia -prune -o -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.h' \
    -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' -o -name '*.pyx' \) -exec rm {} +
# A copy of the runtime for programs in C, and tools that make graphs.
rm -rf numpy/distutils numpy/f2py onnxruntime/capi/libonnxruntime.so.* onnxruntime/quantization \
    onnxruntime/tools onnxruntime/transformers

# Debug symbols.
find csimdjson.* httptools pyarrow uvloop -name '*.so*' -type f -exec strip --strip-unneeded {} +

# Of Arrow keep streams and casts. Parquet and other libraries are linked with it, but not used.
cd pyarrow
for file in lib.*.so _compute.*.so libarrow_python.so.*; do
    for library in $(patchelf --print-needed "$file"); do
        case $library in libarrow_acero.* | libarrow_dataset.* | libarrow_substrait.* | libparquet.*)
            patchelf --remove-needed "$library" "$file" ;;
        esac
    done
done
# shellcheck disable=SC2046 # One line of names.
used=" $(echo lib.*.so _compute.*.so $(patchelf --print-needed lib.*.so)) "
for file in *.so *.so.*; do
    case $used in *" $file "*) ;; *) rm "$file" ;; esac
done

#!/bin/sh
# Takes from an environment what no server needs: deploy/slim.sh FOLDER. With strip (binutils) and
# patchelf.
set -eu
cd "$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"

# What compilers and the libraries' own tests read. CUDA's libraries stay as NVIDIA made them.
find . -path ./nvidia -prune -o -type d \( -name tests -o -name include \) -prune -exec rm -rf {} +
find . -path ./nvidia -prune -o -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.h' \
    -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' -o -name '*.pyx' \) -exec rm {} +
# The runtime once more, for programs in C, and what makes graphs.
rm -rf numpy/distutils numpy/f2py onnxruntime/capi/libonnxruntime.so.* onnxruntime/quantization \
    onnxruntime/tools onnxruntime/transformers

# Symbols for debuggers.
find csimdjson.* httptools pyarrow uvloop -name '*.so*' -type f -exec strip --strip-unneeded {} +

# Of Arrow what reads and writes streams and casts columns. Parquet and more are linked with it
# although nothing of them is used.
cd pyarrow
for file in lib.*.so _compute.*.so libarrow_python.so.*; do
    for library in $(patchelf --print-needed "$file"); do
        case $library in libarrow_acero.* | libarrow_dataset.* | libarrow_substrait.* | libparquet.*)
            patchelf --remove-needed "$library" "$file" ;;
        esac
    done
done
used=" $(echo lib.*.so _compute.*.so $(patchelf --print-needed lib.*.so)) "
for file in *.so *.so.*; do
    case $used in *" $file "*) ;; *) rm "$file" ;; esac
done

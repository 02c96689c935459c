# Sum the roots of SAMPLES numbers, EPOCHS times, in as many processes as the study says.
samples=$1 epochs=$2
share=$(((samples + WORLD_SIZE - 1) / WORLD_SIZE))
start=$(date +%s%N)
worker=0
while [ "$worker" -lt "$WORLD_SIZE" ]; do
  awk -v n="$share" -v epochs="$epochs" \
    'BEGIN { for (e = 0; e < epochs; e++) for (i = 0; i < n; i++) sum += sqrt(i); printf "worker: %.1f\n", sum }' &
  worker=$((worker + 1))
done
wait
end=$(date +%s%N)
awk -v n="$samples" -v epochs="$epochs" -v ns="$((end - start))" \
  'BEGIN { printf "samples/s: %.1f\n", n * epochs / (ns / 1e9) }'

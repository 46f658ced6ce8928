FROM scratch
COPY tensorturn /tensorturn
ENTRYPOINT ["/tensorturn"]
